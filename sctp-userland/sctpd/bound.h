/* Which addresses a socket was bound to, and addresses in general. */
#ifndef BOUND_H
#define BOUND_H

#include "sockets.h"

/* Whether another socket has an association from one of this one's addresses and its port with this peer: another one would take its place. */
bool socket_would_take_over(const struct sctp_socket *s, const struct sockaddr *peer);

/* Bind a socket that has no port to one that no other has, as usrsctp would to one that its accepted sockets may have. Return 0 or an errno. */
int socket_choose_port(struct sctp_socket *s, struct sockaddr_in6 *address);

/* Whether a packet from this local port (host order), for which usrsctp chose a source address, may carry the wanted one instead. A
 * connecting socket that was never bound gets its port in the middle of connect(): its first packet comes from a port not noted here. */
bool sockets_may_use(uint16_t port, const struct sockaddr *chosen, const struct sockaddr *wanted, bool connecting);

/* Whether who binds this address and port would share them with this socket. */
bool socket_conflicts(const struct sctp_socket *s, const struct sockaddr *address);

/* IPv4 as the program of an IPv6 socket sees it (::ffff:a.b.c.d), and back; other addresses stay. Room for a sockaddr_in6; return the
 * length. */
socklen_t address_map(struct sockaddr_in6 *address, int domain);
socklen_t address_unmap(struct sockaddr_in6 *address);
struct sockaddr_in6 address_unmapped(const struct sockaddr *address);

/* The next of packed addresses; *bytes is then behind it. */
struct sockaddr_in6 address_next(const char **bytes);

bool socket_binds_all(const struct sctp_socket *s);

/* Whether this endpoint of usrsctp's is bound to all addresses of the host. */
bool sockets_bind_all(const void *endpoint);

/* The addresses may be of IPv4 or IPv6; ports don't matter. */
bool address_same(const struct sockaddr *first, const struct sockaddr *second);

/* A number, the same for addresses that are the same. */
unsigned int address_hash(const struct sockaddr *address);

bool address_is_any(const struct sockaddr *address);
bool address_is_loopback(const struct sockaddr *address);
bool address_is_link_local(const struct sockaddr *address);

/* Remember addresses for the above and for getsockname(). */
void socket_note_bound(struct sctp_socket *s, const struct sockaddr *address);
void socket_forget_bound(struct sctp_socket *s, const struct sockaddr *address);
bool socket_is_bound_to(const struct sctp_socket *s, const struct sockaddr *address);

/* Ask usrsctp for the port a socket was bound to by itself. */
void socket_note_port(struct sctp_socket *s);

/* Remember the peer, for getpeername(). */
void socket_note_peer(struct sctp_socket *s);

/* Host order. */
static inline uint16_t address_port(const struct sockaddr *address)
{
	uint16_t port; /* at the same place in both families */

	memcpy(&port, (const char *)address + 2, sizeof(port));
	return ntohs(port);
}

static inline socklen_t address_length(const struct sockaddr *address)
{
	if (address->sa_family == AF_INET)
		return sizeof(struct sockaddr_in);
	return address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : 0;
}

#endif
