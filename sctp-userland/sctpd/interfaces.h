/* The addresses of this network namespace, kept up to date by netlink, and those local ones that stand on no interface. */
#ifndef INTERFACES_H
#define INTERFACES_H

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/types.h>

/* netlink.c: read what is there and follow changes. Return 0 or -errno. The other one reads what has changed just now. */
int interfaces_watch(void);
void interfaces_catch_up(void);

/* An address (IPv4 or IPv6: bytes) stands on an interface now, or no more. */
void interfaces_change(bool add, unsigned int interface, int family, const void *bytes);

/* From now on all are told; all were: the others are gone. */
void interfaces_tell_all(void);
void interfaces_told_all(void);

/* Make an address known that is local without standing on an interface (127.0.0.2, routes of type local), to who binds it. It stays known,
 * so that peers are told at once that its ports are closed, until there are too many: a user gets no more than are left then for others. */
struct sockaddr;
void interfaces_admit(uid_t user, const struct sockaddr *address);

/* The address, if this entry of usrsctp's is one of those; NULL: it isn't. */
struct sctp_ifa;
const struct sockaddr *interfaces_admitted(const struct sctp_ifa *ifa);

/* Index of the interface that has this IPv6 address, 0: none. */
unsigned int interfaces_index_of(const struct in6_addr *address);

#endif
