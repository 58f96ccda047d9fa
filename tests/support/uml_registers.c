/* LD_PRELOAD for User-Mode Linux on processors whose registers take more room than it has for them (AMX: 11 KB).
 *
 * It reads a guest process's registers into its own buffer, which the host cuts off, and writes them back; that the host refuses unless all are
 * there (EFAULT; "ptrace set fp regs failed" is all that is seen of the guest then). So those that it has no room for stay as they are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#define HEADER 512            /* bytes before the mask of what is in use (Intel's manual, volume 1, section 13.4.2) */
#define KNOWN ((1ULL << 17) - 1) /* all before AMX */
#define ROOM 65536            /* bytes */

typedef long function(enum __ptrace_request, ...);

static long write_all(function *library, pid_t process, const struct iovec *known)
{
	static char bytes[ROOM];
	struct iovec all = { bytes, sizeof(bytes) };
	uint64_t before, wanted;

	if (library(PTRACE_GETREGSET, process, NT_X86_XSTATE, &all) < 0)
		return -1;
	memcpy(&before, bytes + HEADER, sizeof(before));
	memcpy(bytes, known->iov_base, known->iov_len < all.iov_len ? known->iov_len : all.iov_len);
	memcpy(&wanted, bytes + HEADER, sizeof(wanted));
	wanted = (wanted & KNOWN) | (before & ~KNOWN);
	memcpy(bytes + HEADER, &wanted, sizeof(wanted));
	return library(PTRACE_SETREGSET, process, NT_X86_XSTATE, &all);
}

long ptrace(enum __ptrace_request request, ...)
{
	static function *library;
	va_list arguments;
	pid_t process;
	void *address, *data;
	long result;

	va_start(arguments, request);
	process = va_arg(arguments, pid_t);
	address = va_arg(arguments, void *);
	data = va_arg(arguments, void *);
	va_end(arguments);
	if (library == NULL)
		*(void **)&library = dlsym(RTLD_NEXT, "ptrace");
	result = library(request, process, address, data);
	if (result < 0 && errno == EFAULT && request == PTRACE_SETREGSET && (uintptr_t)address == NT_X86_XSTATE)
		return write_all(library, process, data);
	return result;
}
