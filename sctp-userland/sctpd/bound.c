/* Which addresses a socket was bound to: for getsockname(), and for the source addresses of its packets. */
#include <string.h>

#include "sockets.h"

static bool same(const struct sockaddr *first, const struct sockaddr *second)
{
	if (first->sa_family != second->sa_family)
		return false;
	if (first->sa_family == AF_INET)
		return ((const struct sockaddr_in *)first)->sin_addr.s_addr == ((const struct sockaddr_in *)second)->sin_addr.s_addr;
	return IN6_ARE_ADDR_EQUAL(&((const struct sockaddr_in6 *)first)->sin6_addr, &((const struct sockaddr_in6 *)second)->sin6_addr);
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

void socket_note_bound(struct sctp_socket *s, const struct sockaddr *address)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
	bool any = address->sa_family == AF_INET ? v4->sin_addr.s_addr == INADDR_ANY
						 : (bool)IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr);

	if (any)
		s->bound_any = true;
	if (s->bound_count < (int)(sizeof(s->bound) / sizeof(s->bound[0])))
		memcpy(&s->bound[s->bound_count++], address, address_length(address));
}

void socket_forget_bound(struct sctp_socket *s, const struct sockaddr *address)
{
	int i;

	for (i = 0; i < s->bound_count; i++)
		if (same((const struct sockaddr *)&s->bound[i], address)) {
			s->bound[i] = s->bound[--s->bound_count];
			return;
		}
}

static bool is_bound_to(const struct sctp_socket *s, const struct sockaddr *address)
{
	int i;

	for (i = 0; i < s->bound_count; i++)
		if (same((const struct sockaddr *)&s->bound[i], address))
			return true;
	return false;
}

bool sockets_may_use(uint16_t port, const struct sockaddr *chosen, const struct sockaddr *wanted, bool connecting)
{
	const struct sctp_socket *s;
	bool seen = false, any = false;

	for (s = sockets_first(); s != NULL; s = s->next) {
		if (s->port != port)
			continue;
		seen = true;
		if (s->bound_count == 0 || s->bound_any)
			any = true;
		else if (is_bound_to(s, chosen)) /* several sockets may share a port on different addresses: this is the one */
			return is_bound_to(s, wanted);
	}
	return seen ? any : connecting;
}
