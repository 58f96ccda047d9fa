/* The addresses of this network namespace, kept up to date by netlink. */
#ifndef INTERFACES_H
#define INTERFACES_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* netlink.c: read what is there and follow changes. Return 0 or -errno. The other one reads what has changed just now. */
int interfaces_watch(void);
void interfaces_catch_up(void);

/* An address (IPv4 or IPv6: bytes) stands on an interface now, or no more. */
void interfaces_change(bool add, unsigned int interface, int family, const void *bytes);

/* From now on all are told; all were: the others are gone. */
void interfaces_tell_all(void);
void interfaces_told_all(void);

/* Whether this IPv4 address is this host's. */
bool interfaces_has4(struct in_addr address);

/* Index of the interface that has this IPv6 address, 0: none. */
unsigned int interfaces_index_of(const struct in6_addr *address);

/* For admitted.c. */
struct sctp_ifa;
struct address {
	struct address *next, *next_admitted;
	unsigned int interface;
	struct sockaddr_in6 value; /* or sockaddr_in */
	uint32_t seen; /* the round of telling all that told of it, or what came after */
	bool bound; /* when it was last looked */
	const struct sctp_ifa *admitted; /* usrsctp's own entry of one that stands on no interface */
};
struct address *interfaces_first(void);
struct address *interfaces_known(const struct sockaddr_in6 *address);
void interfaces_forget(struct address *address);

/* Tell under which index and name usrsctp is to know an address. */
#define INTERFACE_NAME 32
unsigned int interfaces_in_usrsctp(unsigned int interface, const struct sockaddr_in6 *address, char *name, size_t room);

#endif
