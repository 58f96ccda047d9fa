/* The addresses of this host. */
#ifndef INTERFACES_H
#define INTERFACES_H

#include <netinet/in.h>
#include <stdbool.h>

/* Tell usrsctp which addresses stand on interfaces, and follow changes of addresses and routes. Return 0 or -errno. */
int interfaces_watch(void);

/* Make an address known that stands on no interface (127.0.0.2, routes of type local), to the socket that is about to bind it. It stays known, so that
 * peers are told at once that its ports are closed, until there are too many. */
void interfaces_admit(const struct sockaddr *address);

/* Whether an address, of IPv4 or IPv6, is one of this host. Index of its interface, 0: none. */
bool interfaces_have(const struct sockaddr_in6 *address);
unsigned int interfaces_index_of(const struct sockaddr_in6 *address);

#endif
