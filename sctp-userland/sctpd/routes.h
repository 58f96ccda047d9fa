/* Which address a packet leaves from, by the kernel's routing table. */
#ifndef ROUTES_H
#define ROUTES_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

/* Replace *source by the address the routing table prefers for this destination, where the local endpoint of the packet
 * (sctp_header: its common header) may use it. Return the MTU of the path as the kernel knows it, by its link and by ICMP; 0: unknown. */
uint32_t routes_choose_source(struct sockaddr_in6 *source, const struct sockaddr *destination, const char *sctp_header);

/* Ask the kernel anew for each. */
void routes_forget(void);

/* The address packets to this peer leave from, of IPv4 or IPv6, without a port; all zero: there is no route. */
struct sockaddr_in6 routes_source_to(const struct sockaddr *peer);

/* Whether the kernel says that there is no route to this peer. */
bool routes_lack(const struct sockaddr *peer);

#endif
