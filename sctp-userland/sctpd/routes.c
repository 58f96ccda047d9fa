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
#define ROUTE_MS 1000 /* ... for this time: the kernel learns a path's MTU without a word */

struct route {
	struct sockaddr_in6 destination, source; /* or sockaddr_in; source: none: unknown */
	uint32_t mtu; /* of the path, 0: unknown */
	uint64_t until_ms;
	bool none;
};

static struct route routes[ROUTES];

/* The kernel's own choice: a connected UDP socket gets the preferred source address; nothing is sent. */
static const struct route *route_to(const struct sockaddr *peer)
{
	struct sockaddr_in6 destination = address_unmapped(peer);
	struct route *route = &routes[address_hash((struct sockaddr *)&destination) % ROUTES];
	socklen_t source_length = sizeof(route->source), mtu_length = sizeof(uint32_t);
	int fd;

	if (loop_now_ms() < route->until_ms && address_same((struct sockaddr *)&route->destination, (struct sockaddr *)&destination))
		return route;
	destination.sin6_port = htons(9);
	*route = (struct route){ .destination = destination };
	fd = socket(destination.sin6_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return route;
	if (connect(fd, (struct sockaddr *)&destination, address_length((struct sockaddr *)&destination)) == 0 &&
	    getsockname(fd, (struct sockaddr *)&route->source, &source_length) == 0) {
		route->source.sin6_port = 0;
		if (destination.sin6_family == AF_INET)
			getsockopt(fd, IPPROTO_IP, IP_MTU, &route->mtu, &mtu_length);
		else
			getsockopt(fd, IPPROTO_IPV6, IPV6_MTU, &route->mtu, &mtu_length);
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

uint32_t routes_choose_source(struct sockaddr_in6 *source, const struct sockaddr *destination, const char *sctp_header)
{
	const struct route *route;
	uint16_t port;

	if (is_reply_to_stranger(sctp_header) || address_is_link_local(destination))
		return 0;
	route = route_to(destination);
	memcpy(&port, sctp_header, sizeof(port));
	if (!address_is_any((const struct sockaddr *)&route->source) && !address_same((struct sockaddr *)source, (const struct sockaddr *)&route->source) &&
	    sockets_may_use(ntohs(port), (struct sockaddr *)source, (const struct sockaddr *)&route->source, is_init(sctp_header)))
		*source = route->source;
	return route->mtu;
}

bool routes_lack(const struct sockaddr *peer)
{
	return route_to(peer)->none;
}

struct sockaddr_in6 routes_source_to(const struct sockaddr *peer)
{
	struct sockaddr_in6 source = route_to(peer)->source;

	if (source.sin6_family == AF_UNSPEC)
		source.sin6_family = peer->sa_family;
	return source;
}
