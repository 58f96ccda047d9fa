/* Where packets must be dropped since whose they would be holds too much: local addresses and ports, no others of the same port. */
#ifndef REFUSED_H
#define REFUSED_H

#include <stdbool.h>

struct sctp_socket;
struct sockaddr;

/* Make the list anew: forget it, add those sockets that take no data, or whose owner may have no more associations, and make it ready. */
void refused_forget(void);
void refused_add(const struct sctp_socket *s, bool data, bool begins);
void refused_ready(void);

/* Whether a packet for this address and port is refused for its data, or since it begins an association. */
bool refused_at(const struct sockaddr *local, bool data, bool begins);

#endif
