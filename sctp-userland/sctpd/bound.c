/* Which addresses a socket was bound to: for getsockname(), and for the source addresses of its packets. */
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "bound.h"
#include "sockets.h"
#include "usrsctp_internal.h"

bool address_same(const struct sockaddr *first, const struct sockaddr *second)
{
	if (first->sa_family != second->sa_family)
		return false;
	if (first->sa_family == AF_INET)
		return ((const struct sockaddr_in *)first)->sin_addr.s_addr == ((const struct sockaddr_in *)second)->sin_addr.s_addr;
	return IN6_ARE_ADDR_EQUAL(&((const struct sockaddr_in6 *)first)->sin6_addr, &((const struct sockaddr_in6 *)second)->sin6_addr);
}

unsigned int address_hash(const struct sockaddr *address)
{
	const bool v4 = address->sa_family == AF_INET;
	const uint8_t *bytes = v4 ? (const uint8_t *)&((const struct sockaddr_in *)address)->sin_addr :
				    ((const struct sockaddr_in6 *)address)->sin6_addr.s6_addr;
	unsigned int i, number = 0;

	for (i = 0; i < (v4 ? sizeof(struct in_addr) : sizeof(struct in6_addr)); i++)
		number = number * 31 + bytes[i];
	return number;
}

socklen_t address_map(struct sockaddr_in6 *address, int domain)
{
	struct sockaddr_in v4;

	if (domain == AF_INET6 && address->sin6_family == AF_INET) {
		memcpy(&v4, address, sizeof(v4));
		*address = (struct sockaddr_in6){ .sin6_family = AF_INET6, .sin6_port = v4.sin_port };
		address->sin6_addr.s6_addr[10] = address->sin6_addr.s6_addr[11] = 0xff;
		memcpy(address->sin6_addr.s6_addr + 12, &v4.sin_addr, sizeof(v4.sin_addr));
	}
	if (address->sin6_family == AF_INET6) /* whatever connect() was given: as in Linux */
		address->sin6_flowinfo = address->sin6_scope_id = 0;
	return address_length((const struct sockaddr *)address);
}

socklen_t address_unmap(struct sockaddr_in6 *address)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = address->sin6_port };

	if (address->sin6_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&address->sin6_addr)) {
		memcpy(&v4.sin_addr, address->sin6_addr.s6_addr + 12, sizeof(v4.sin_addr));
		*address = (struct sockaddr_in6){ 0 };
		memcpy(address, &v4, sizeof(v4));
	}
	return address_length((const struct sockaddr *)address);
}

struct sockaddr_in6 address_unmapped(const struct sockaddr *address)
{
	struct sockaddr_in6 unmapped = { 0 };

	memcpy(&unmapped, address, address_length(address));
	address_unmap(&unmapped);
	return unmapped;
}

struct sockaddr_in6 address_next(const char **bytes)
{
	struct sockaddr_in6 address = { 0 };
	const socklen_t length = address_length((const struct sockaddr *)*bytes);

	memcpy(&address, *bytes, length);
	*bytes += length;
	return address;
}

bool address_is_loopback(const struct sockaddr *address)
{
	if (address->sa_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

bool address_is_link_local(const struct sockaddr *address)
{
	return address->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

bool address_is_any(const struct sockaddr *address)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;

	return address->sa_family == AF_INET ? v4->sin_addr.s_addr == INADDR_ANY : (bool)IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr);
}

void socket_note_bound(struct sctp_socket *s, const struct sockaddr *address)
{
	struct sockaddr_in6 unmapped = address_unmapped(address);

	if (s->bound_count < BOUND_MAX)
		s->bound[s->bound_count++] = unmapped;
}

void socket_forget_bound(struct sctp_socket *s, const struct sockaddr *address)
{
	struct sockaddr_in6 unmapped = address_unmapped(address);
	int i;

	for (i = 0; i < s->bound_count; i++)
		if (address_same((const struct sockaddr *)&s->bound[i], (const struct sockaddr *)&unmapped)) {
			s->bound[i] = s->bound[--s->bound_count];
			return;
		}
}

static bool is_in(const struct sockaddr_in6 *list, int count, const struct sockaddr *address)
{
	int i;

	for (i = 0; i < count; i++)
		if (address_same((const struct sockaddr *)&list[i], address))
			return true;
	return false;
}

bool socket_is_bound_to(const struct sctp_socket *s, const struct sockaddr *address)
{
	struct sockaddr_in6 unmapped = address_unmapped(address);

	return is_in(s->bound, s->bound_count, (const struct sockaddr *)&unmapped);
}

void socket_note_port(struct sctp_socket *s)
{
	struct sockaddr *list = NULL;

	if (s->port != 0)
		return;
	if (usrsctp_getladdrs(s->so, 0, &list) > 0)
		s->port = address_port(list);
	if (list != NULL)
		usrsctp_freeladdrs(list);
}

void socket_note_peer(struct sctp_socket *s)
{
	struct sockaddr *list = NULL;

	if (!IS_ONE_TO_ONE(s) || usrsctp_getpaddrs(s->so, 0, &list) <= 0)
		return;
	memcpy(&s->peer, list, address_length(list));
	usrsctp_freepaddrs(list);
}

/* ::ffff:0.0.0.0, too, which stands there as 0.0.0.0: usrsctp and Linux then bind to all of IPv6 as well. */
bool socket_binds_all(const struct sctp_socket *s)
{
	int i = 0;

	while (i < s->bound_count && !address_is_any((const struct sockaddr *)&s->bound[i]))
		i++;
	return s->bound_count == 0 || i < s->bound_count;
}

bool sockets_bind_all(const void *endpoint)
{
	const struct sctp_socket *s = sockets_first();

	while (s != NULL && s->so->protocol_block != endpoint)
		s = s->next;
	return s == NULL || socket_binds_all(s);
}

static bool is_at(const struct sctp_socket *s, const struct sockaddr *local)
{
	if (s->port == 0 || s->port != address_port(local))
		return false;
	if (!socket_binds_all(s))
		return is_in(s->bound, s->bound_count, local);
	return local->sa_family == s->domain || (s->domain == AF_INET6 && !s->v6only);
}

bool socket_conflicts(const struct sctp_socket *s, const struct sockaddr *address)
{
	struct sockaddr_in6 wanted = address_unmapped(address);
	int i;

	if (s->port == 0 || s->port != ntohs(wanted.sin6_port))
		return false;
	if (!address_is_any((struct sockaddr *)&wanted))
		return is_at(s, (struct sockaddr *)&wanted);
	if (wanted.sin6_family == AF_INET6 || socket_binds_all(s))
		return wanted.sin6_family == AF_INET6 || s->domain == AF_INET || !s->v6only;
	for (i = 0; i < s->bound_count && s->bound[i].sin6_family != AF_INET;)
		i++;
	return i < s->bound_count;
}

bool sockets_may_use(uint16_t port, const struct sockaddr *chosen, const struct sockaddr *wanted, bool connecting)
{
	const struct sctp_socket *s;
	bool seen = false, any = false;

	for (s = sockets_first(); s != NULL; s = s->next) {
		if (s->port != port)
			continue;
		seen = true;
		if (socket_binds_all(s))
			any = true;
		else if (is_in(s->bound, s->bound_count, chosen)) /* several sockets may share a port on different addresses: this is the one */
			return is_in(s->bound, s->bound_count, wanted);
	}
	return seen ? any : connecting;
}

static bool shares_address(const struct sctp_socket *s, const struct sctp_socket *other)
{
	int i;

	if (socket_binds_all(s) || socket_binds_all(other))
		return true;
	for (i = 0; i < s->bound_count; i++)
		if (is_in(other->bound, other->bound_count, (const struct sockaddr *)&s->bound[i]))
			return true;
	return false;
}

static bool has_association(struct socket *so, struct sockaddr *peer)
{
	sctp_assoc_t identifier = usrsctp_getassocid(so, peer); /* of one-to-one sockets that of the only one, whoever its peer is */
	struct sockaddr *list = NULL;
	int count = identifier == 0 ? 0 : usrsctp_getpaddrs(so, identifier, &list);
	const char *next = (const char *)list;
	bool found = false;

	for (; count > 0 && !found; count--) {
		const struct sockaddr_in6 address = address_next(&next);

		found = address_port((const struct sockaddr *)&address) == address_port(peer) && address_same((const struct sockaddr *)&address, peer);
	}
	if (list != NULL)
		usrsctp_freepaddrs(list);
	return found;
}

static bool has_any_association(const struct sctp_socket *s, struct sockaddr *peer)
{
	const struct waiting *waiting = s->waiting;

	while (waiting != NULL && !has_association(waiting->so, peer))
		waiting = waiting->next;
	return waiting != NULL || has_association(s->so, peer);
}

bool socket_would_take_over(const struct sctp_socket *s, const struct sockaddr *peer)
{
	struct sockaddr_in6 unmapped = address_unmapped(peer);
	const struct sctp_socket *other;

	for (other = sockets_first(); other != NULL; other = other->next)
		if (other != s && s->port != 0 && other->port == s->port && shares_address(s, other) &&
		    has_any_association(other, (struct sockaddr *)&unmapped))
			return true;
	return false;
}

int socket_choose_port(struct sctp_socket *s, struct sockaddr_in6 *address)
{
	const unsigned int first = 49152, number = 65536 - first; /* RFC 6335: those for nothing in particular */
	uint8_t taken[65536 / 8] = { 0 };
	const struct sctp_socket *other;
	uint16_t start = 0;
	unsigned int i;

	for (other = sockets_first(); other != NULL; other = other->next)
		taken[other->port / 8] |= (uint8_t)(1 << other->port % 8);
	if (getrandom(&start, sizeof(start), 0) < 0)
		start = (uint16_t)loop_now_ms();
	for (i = 0; i < number; i++) {
		const uint16_t port = (uint16_t)(first + (start + i) % number);

		if (taken[port / 8] & 1 << port % 8)
			continue;
		address->sin6_port = htons(port); /* at the same place in both families */
		if (usrsctp_bind(s->so, (struct sockaddr *)address, address_length((struct sockaddr *)address)) == 0) {
			s->port = port;
			return 0;
		}
		if (errno != EADDRINUSE)
			return errno;
	}
	return EADDRINUSE;
}
