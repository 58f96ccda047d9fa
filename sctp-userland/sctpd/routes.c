#include "routes.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <usrsctp.h>

#include "bound.h"
#include "loop.h"
#include "sockets.h"

#define T_BIT 1 /* RFC 9260 section 8.5.1: the tag is the receiver's own */
#define ROUTES 64 /* destinations remembered */
#define ROUTE_MS 1000 /* ... for so long: the kernel learns a path's MTU without a word */

struct route {
	struct in6_addr destination, source; /* IPv4 as mapped */
	uint32_t mtu; /* of the path, 0: unknown */
	uint64_t until_ms;
	bool none;
};

static struct route routes[ROUTES];

/* The kernel's own choice: a connected UDP socket gets the preferred source address; nothing is sent. */
static const struct route *route_to(struct sockaddr *destination, socklen_t length, const struct in6_addr *key)
{
	unsigned int i, slot = 0;
	struct sockaddr_in6 source = { 0 };
	int fd, mtu = 0;
	socklen_t source_length = sizeof(source), mtu_length = sizeof(mtu);
	struct route *route;

	for (i = 0; i < sizeof(*key); i++)
		slot = slot * 31 + key->s6_addr[i];
	route = &routes[slot % ROUTES];
	if (loop_now_ms() < route->until_ms && IN6_ARE_ADDR_EQUAL(&route->destination, key))
		return route;
	*route = (struct route){ .destination = *key };
	fd = socket(destination->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return route;
	if (connect(fd, destination, length) == 0 && getsockname(fd, (struct sockaddr *)&source, &source_length) == 0) {
		if (source.sin6_family == AF_INET)
			memcpy(&route->source, &((struct sockaddr_in *)&source)->sin_addr, sizeof(struct in_addr));
		else
			route->source = source.sin6_addr;
		if (getsockopt(fd, source.sin6_family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6,
			       source.sin6_family == AF_INET ? IP_MTU : IPV6_MTU, &mtu, &mtu_length) == 0)
			route->mtu = (uint32_t)mtu;
		route->until_ms = loop_now_ms() + ROUTE_MS;
	} else { /* ask again for the next packet */
		route->none = errno == ENETUNREACH || errno == EHOSTUNREACH;
	}
	close(fd);
	return route;
}

void routes_forget(void)
{
	memset(routes, 0, sizeof(routes));
}

static bool is_init(const char *sctp_header)
{
	return sctp_header[12] == SCTP_INITIATION;
}

/* A packet of no association is answered from the address it came to. */
static bool is_reply_to_stranger(const char *sctp_header)
{
	return (sctp_header[12] == SCTP_ABORT_ASSOCIATION || sctp_header[12] == SCTP_SHUTDOWN_COMPLETE) && sctp_header[13] & T_BIT;
}

uint32_t routes_choose_source4(struct in_addr *source, struct in_addr destination, const char *sctp_header)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9), .sin_addr = destination };
	struct in6_addr key = { 0 };
	struct sockaddr_in wanted = { .sin_family = AF_INET }, chosen = { .sin_family = AF_INET, .sin_addr = *source };
	const struct route *route;
	uint16_t port;

	if (is_reply_to_stranger(sctp_header))
		return 0;
	key.s6_addr[10] = key.s6_addr[11] = 0xff;
	memcpy(key.s6_addr + 12, &destination, sizeof(destination));
	route = route_to((struct sockaddr *)&to, sizeof(to), &key);
	memcpy(&wanted.sin_addr, &route->source, sizeof(wanted.sin_addr));
	memcpy(&port, sctp_header, sizeof(port));
	if (wanted.sin_addr.s_addr != 0 && wanted.sin_addr.s_addr != source->s_addr &&
	    sockets_may_use(ntohs(port), (struct sockaddr *)&chosen, (struct sockaddr *)&wanted, is_init(sctp_header)))
		*source = wanted.sin_addr;
	return route->mtu;
}

uint32_t routes_choose_source6(struct in6_addr *source, const struct in6_addr *destination, const char *sctp_header)
{
	struct sockaddr_in6 to = { .sin6_family = AF_INET6, .sin6_port = htons(9), .sin6_addr = *destination };
	struct sockaddr_in6 wanted = { .sin6_family = AF_INET6 }, chosen = { .sin6_family = AF_INET6, .sin6_addr = *source };
	const struct route *route;
	uint16_t port;

	if (IN6_IS_ADDR_LINKLOCAL(destination) || is_reply_to_stranger(sctp_header))
		return 0;
	route = route_to((struct sockaddr *)&to, sizeof(to), destination);
	wanted.sin6_addr = route->source;
	memcpy(&port, sctp_header, sizeof(port));
	if (!IN6_IS_ADDR_UNSPECIFIED(&wanted.sin6_addr) && !IN6_ARE_ADDR_EQUAL(&wanted.sin6_addr, source) &&
	    sockets_may_use(ntohs(port), (struct sockaddr *)&chosen, (struct sockaddr *)&wanted, is_init(sctp_header)))
		*source = wanted.sin6_addr;
	return route->mtu;
}

static const struct route *route_to_peer(const struct sockaddr *peer)
{
	struct sockaddr_in6 to = { 0 };
	struct in6_addr key = { 0 };

	memcpy(&to, peer, address_length(peer));
	address_unmap(&to);
	if (to.sin6_family == AF_INET6)
		return route_to((struct sockaddr *)&to, sizeof(to), &((const struct sockaddr_in6 *)&to)->sin6_addr);
	key.s6_addr[10] = key.s6_addr[11] = 0xff;
	memcpy(key.s6_addr + 12, &((const struct sockaddr_in *)&to)->sin_addr, sizeof(struct in_addr));
	return route_to((struct sockaddr *)&to, sizeof(struct sockaddr_in), &key);
}

bool routes_lack(const struct sockaddr *peer)
{
	return route_to_peer(peer)->none;
}

struct sockaddr_in6 routes_source_to(const struct sockaddr *peer)
{
	struct sockaddr_in6 result = { .sin6_family = peer->sa_family };
	const struct route *route = route_to_peer(peer);

	if (peer->sa_family == AF_INET)
		memcpy(&((struct sockaddr_in *)&result)->sin_addr, &route->source, sizeof(struct in_addr));
	else
		result.sin6_addr = route->source;
	return result;
}
