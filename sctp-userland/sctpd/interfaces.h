/* The addresses of this network namespace, kept up to date by netlink. */
#ifndef INTERFACES_H
#define INTERFACES_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* An address, without a port, stands on an interface now, or no more. */
void interfaces_change(bool add, unsigned int interface, const struct sockaddr_in6 *address);

/* From now on all are told; all were: the others are gone. */
void interfaces_tell_all(void);
void interfaces_told_all(void);

/* Index of the interface that has this IPv6 address, 0: none. */
unsigned int interfaces_index_of(const struct sockaddr_in6 *address);

struct sctp_ifa;
struct address {
	struct address *next, *next_admitted;
	unsigned int interface;
	struct sockaddr_in6 value; /* or sockaddr_in */
	uint32_t seen; /* the round of telling all that told of it, or what came after */
	bool bound; /* when it was last looked */
	const struct sctp_ifa *admitted; /* usrsctp's own entry of one that stands on no interface, see admitted.c */
};
struct address *interfaces_first(void);
struct address *interfaces_known(const struct sockaddr_in6 *address);
void interfaces_forget(struct address *address);

/* This one stands on no interface, and is this entry of usrsctp's (NULL: there was no memory for it). Their number. */
void interfaces_admit(struct address *address, const struct sctp_ifa *entry);
unsigned int interfaces_admitted_count(void);

/* The address, if this entry of usrsctp's is one of those; NULL: it isn't. */
const struct sockaddr *interfaces_admitted(const struct sctp_ifa *entry);

/* Tell under which index and name usrsctp is to know an address. */
#define INTERFACE_NAME 32
unsigned int interfaces_in_usrsctp(unsigned int interface, const struct sockaddr_in6 *address, char *name, size_t room);

#endif
