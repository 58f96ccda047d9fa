/* The lines of sctpd --status. */
#ifndef STATUS_H
#define STATUS_H

#include <stdbool.h>

/* All sockets and their associations as they are now, as text or JSON, in a file without a name. Return its descriptor or -errno. */
int status_file(bool json);

#endif
