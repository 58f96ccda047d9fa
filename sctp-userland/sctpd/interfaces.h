/* The addresses of this network namespace, kept up to date by netlink, and which of them a packet leaves from. */
#ifndef INTERFACES_H
#define INTERFACES_H

#include <netinet/in.h>
#include <stdint.h>

/* Read what is there and follow changes. Return 0 or -errno. */
int interfaces_watch(void);

/* Replace *source by the address the routing table prefers for this destination, where the local endpoint of the packet
 * (sctp_header: its common header) may use it. Return the MTU of the path as the kernel knows it, by its link and by ICMP; 0: unknown. */
uint32_t interfaces_choose_source4(struct in_addr *source, struct in_addr destination, const char *sctp_header);
uint32_t interfaces_choose_source6(struct in6_addr *source, const struct in6_addr *destination, const char *sctp_header);

/* Ask the kernel anew for each. */
void interfaces_forget_routes(void);

/* The address packets to this peer leave from, without a port; all zero: there is no route. */
struct sockaddr_in6 interfaces_source_to(const struct sockaddr *peer);

/* Make an address known that is local without standing on an interface (127.0.0.2, routes of type local): to who binds it. */
struct sockaddr;
void interfaces_admit(const struct sockaddr *address);

/* Index of the interface that has this IPv6 address, 0: none. */
unsigned int interfaces_index_of(const struct in6_addr *address);

#endif
