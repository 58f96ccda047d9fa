#include "real.h"

#include <dlfcn.h>
#include <string.h>

static struct real functions;

/* POSIX lets dlsym() return functions; ISO C has no conversion for it. */
#define LOOK_UP(name) memcpy(&functions.name, &(void *){ dlsym(RTLD_NEXT, #name) }, sizeof(functions.name));

const struct real *real(void)
{
	if (__atomic_load_n(&functions.writev, __ATOMIC_ACQUIRE) == NULL) { /* the last one says that all are there */
		REAL_FUNCTIONS(LOOK_UP)
	}
	return &functions;
}
