/* Local addresses that stand on no interface (127.0.0.2, routes of type local). */
#ifndef ADMITTED_H
#define ADMITTED_H

#include <sys/socket.h>
#include <sys/types.h>

/* Make such an address known, to who binds it. It stays known, so that peers are told at once that its ports are closed, until there are too
 * many. */
void admitted_add(const struct sockaddr *address);

#endif
