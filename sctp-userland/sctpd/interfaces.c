#define _GNU_SOURCE
#include "interfaces.h"

#include <errno.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loop.h"
#include "sockets.h"
#include "usrsctp_internal.h"

#define T_BIT 1 /* RFC 9260 section 8.5.1: the tag is the receiver's own */
#define ROUTES 64 /* destinations remembered */
#define ROUTE_MS 1000 /* ... for so long: the kernel learns a path's MTU without a word */

struct address {
	struct address *next;
	unsigned int interface;
	struct sockaddr_in6 value; /* or sockaddr_in */
	uint32_t seen;		   /* the dump, or what came after it, that told of it */
	bool admitted;		   /* it stands on no interface */
};

struct route {
	struct in6_addr destination, source; /* IPv4 as mapped */
	uint32_t mtu; /* of the path, 0: unknown */
	uint64_t until_ms;
};

static void ready(struct watch *watch, uint32_t events);
static struct watch netlink = { -1, EPOLLIN, ready };
static struct address *addresses;
static struct route routes[ROUTES];
static uint32_t dump; /* number of the last one asked for */

/* Tell under which index and name usrsctp is to know an address. It judges by the name: on an interface called
 * "lo..." every address is loopback, and is not told to peers elsewhere. A kernel judges by the address, so 127.0.0.1
 * and ::1 stand on an interface "lo" of their own here, and all others on one that isn't. */
static unsigned int usrsctp_interface(unsigned int interface, const struct sockaddr_in6 *address, char *name, size_t room)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
	bool loopback = address->sin6_family == AF_INET ? ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET :
							  IN6_IS_ADDR_LOOPBACK(&address->sin6_addr);

	snprintf(name, room, loopback ? "lo%u" : "interface%u", interface);
	return loopback ? interface | 0x40000000 : interface;
}

static void change(bool add, unsigned int interface, int family, const void *bytes)
{
	struct address **link, *found;
	char name[32]; /* not the real one, see usrsctp_interface() */
	struct sockaddr_in6 value = { 0 };
	unsigned int usrsctp_index;

	if (family == AF_INET) {
		struct sockaddr_in *v4 = (struct sockaddr_in *)&value;

		v4->sin_family = AF_INET;
		memcpy(&v4->sin_addr, bytes, sizeof(v4->sin_addr));
	} else if (family == AF_INET6) {
		value.sin6_family = AF_INET6;
		memcpy(&value.sin6_addr, bytes, sizeof(value.sin6_addr));
		if (IN6_IS_ADDR_LINKLOCAL(&value.sin6_addr))
			value.sin6_scope_id = interface;
	} else {
		return;
	}
	for (link = &addresses; *link != NULL; link = &(*link)->next)
		if ((*link)->interface == interface && memcmp(&(*link)->value, &value, sizeof(value)) == 0)
			break;
	usrsctp_index = usrsctp_interface(interface, &value, name, sizeof(name));
	if (add && *link == NULL) {
		found = calloc(1, sizeof(*found));
		if (found == NULL)
			return;
		found->interface = interface;
		found->value = value;
		found->seen = dump;
		*link = found;
		sctp_add_addr_to_vrf(0, NULL, usrsctp_index, 0, name, NULL, (struct sockaddr *)&value, 0, 0);
	} else if (!add && *link != NULL) {
		found = *link;
		*link = found->next;
		free(found);
		sctp_del_addr_from_vrf(0, (struct sockaddr *)&value, usrsctp_index, name);
	} else if (add) {
		(*link)->seen = dump;
	}
}

static void address_message(const struct nlmsghdr *header)
{
	const struct ifaddrmsg *message = NLMSG_DATA(header);
	int left = (int)header->nlmsg_len - (int)NLMSG_LENGTH(sizeof(*message));
	const void *address = NULL, *local = NULL;
	struct rtattr *attribute;

	for (attribute = IFA_RTA(message); RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
		if (attribute->rta_type == IFA_ADDRESS)
			address = RTA_DATA(attribute);
		else if (attribute->rta_type == IFA_LOCAL)
			local = RTA_DATA(attribute);
	}
	if (local == NULL)
		local = address;
	if (local != NULL)
		change(header->nlmsg_type == RTM_NEWADDR, message->ifa_index, message->ifa_family, local);
}

/* Ask for all addresses; what isn't told of until its end is gone. */
static int ask_for_all(void)
{
	struct {
		struct nlmsghdr header;
		struct rtgenmsg body;
	} request = { { NLMSG_LENGTH(sizeof(struct rtgenmsg)), RTM_GETADDR, NLM_F_REQUEST | NLM_F_DUMP, ++dump, 0 }, { AF_UNSPEC } };

	return send(netlink.fd, &request, request.header.nlmsg_len, 0) < 0 ? -errno : 0;
}

static void drop_unseen(void)
{
	struct address *entry, *next;

	for (entry = addresses; entry != NULL; entry = next) {
		next = entry->next;
		if (entry->seen != dump && !entry->admitted)
			change(false, entry->interface, entry->value.sin6_family,
			       entry->value.sin6_family == AF_INET ? (void *)&((struct sockaddr_in *)&entry->value)->sin_addr
								   : (void *)&entry->value.sin6_addr);
	}
}

static void message(const struct nlmsghdr *header)
{
	static bool interrupted; /* the addresses changed while they were told */

	if (header->nlmsg_type == RTM_NEWADDR || header->nlmsg_type == RTM_DELADDR)
		address_message(header);
	if (header->nlmsg_seq != dump)
		return;
	interrupted |= header->nlmsg_flags & NLM_F_DUMP_INTR;
	if (header->nlmsg_type != NLMSG_DONE)
		return;
	if (interrupted)
		ask_for_all();
	else
		drop_unseen();
	interrupted = false;
}

static void ready(struct watch *watch, uint32_t events)
{
	char buffer[32768] __attribute__((aligned(NLMSG_ALIGNTO)));
	ssize_t length;

	(void)events;
	while ((length = recv(watch->fd, buffer, sizeof(buffer), MSG_DONTWAIT)) > 0 || errno == ENOBUFS) {
		unsigned int left = length > 0 ? (unsigned int)length : 0;
		struct nlmsghdr *header;

		interfaces_forget_routes();
		for (header = (struct nlmsghdr *)buffer; NLMSG_OK(header, left); header = NLMSG_NEXT(header, left))
			message(header);
		if (length < 0)
			ask_for_all(); /* some were lost */
		errno = 0;
	}
}

int interfaces_watch(void)
{
	struct sockaddr_nl groups = { .nl_family = AF_NETLINK,
				      .nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | RTMGRP_IPV4_ROUTE |
						   RTMGRP_IPV6_ROUTE | RTMGRP_LINK };

	netlink.fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (netlink.fd < 0)
		return -errno;
	if (bind(netlink.fd, (struct sockaddr *)&groups, sizeof(groups)) < 0 || ask_for_all() < 0)
		return -errno;
	ready(&netlink, EPOLLIN);
	return loop_add(&netlink);
}

unsigned int interfaces_index_of(const struct in6_addr *address)
{
	struct address *entry;

	for (entry = addresses; entry != NULL; entry = entry->next)
		if (entry->value.sin6_family == AF_INET6 && IN6_ARE_ADDR_EQUAL(&entry->value.sin6_addr, address))
			return entry->interface;
	return 0;
}

static bool is_known(const struct sockaddr_in6 *address)
{
	const struct address *entry;

	for (entry = addresses; entry != NULL; entry = entry->next) {
		if (entry->value.sin6_family != address->sin6_family)
			continue;
		if (address->sin6_family == AF_INET
			    ? ((const struct sockaddr_in *)&entry->value)->sin_addr.s_addr ==
				      ((const struct sockaddr_in *)address)->sin_addr.s_addr
			    : IN6_ARE_ADDR_EQUAL(&entry->value.sin6_addr, &address->sin6_addr))
			return true;
	}
	return false;
}

/* Known it is from then on to those who bind it, but not to be told to peers elsewhere for those who bind all: that, usrsctp judges by the
 * interface; whether it may be a source address for them, by what that was when the address was new. */
static void admit(const struct sockaddr_in6 *address)
{
	unsigned int loopback = if_nametoindex("lo"), usrsctp_index;
	struct address *entry;
	char name[32];

	change(true, loopback, address->sin6_family,
	       address->sin6_family == AF_INET ? (const void *)&((const struct sockaddr_in *)address)->sin_addr
					       : (const void *)&address->sin6_addr);
	if (!is_known(address))
		return; /* no memory */
	for (entry = addresses; entry->next != NULL;)
		entry = entry->next; /* the last one is the new one */
	entry->admitted = true;
	usrsctp_index = usrsctp_interface(loopback, &(struct sockaddr_in6){ .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT }, name,
					  sizeof(name));
	sctp_add_addr_to_vrf(0, NULL, usrsctp_index, 0, name, NULL, (struct sockaddr *)&entry->value, 0, 0);
}

void interfaces_admit(const struct sockaddr *address)
{
	struct sockaddr_in6 local = { 0 };
	socklen_t length = address_length(address);
	int fd;

	memcpy(&local, address, length);
	local.sin6_port = 0;
	if (length == 0 || is_known(&local))
		return;
	ready(&netlink, EPOLLIN); /* it may have come just now */
	if (is_known(&local))
		return;
	fd = socket(address->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	if (bind(fd, (struct sockaddr *)&local, length) == 0) /* the kernel knows it */
		admit(&local);
	close(fd);
}

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
	} /* else there is no route now: ask again for the next packet */
	close(fd);
	return route;
}

void interfaces_forget_routes(void)
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

uint32_t interfaces_choose_source4(struct in_addr *source, struct in_addr destination, const char *sctp_header)
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

uint32_t interfaces_choose_source6(struct in6_addr *source, const struct in6_addr *destination, const char *sctp_header)
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

struct sockaddr_in6 interfaces_source_to(const struct sockaddr *peer)
{
	struct sockaddr_in6 result = { .sin6_family = peer->sa_family };
	struct in_addr *source = &((struct sockaddr_in *)&result)->sin_addr;
	const struct in6_addr *destination = &((const struct sockaddr_in6 *)peer)->sin6_addr;
	struct sockaddr_in6 to = { 0 };
	struct in6_addr key = { 0 };

	memcpy(&to, peer, address_length(peer));
	if (peer->sa_family == AF_INET) {
		key.s6_addr[10] = key.s6_addr[11] = 0xff;
		memcpy(key.s6_addr + 12, &((const struct sockaddr_in *)peer)->sin_addr, sizeof(struct in_addr));
		memcpy(source, &route_to((struct sockaddr *)&to, sizeof(struct sockaddr_in), &key)->source, sizeof(*source));
	} else {
		result.sin6_addr = route_to((struct sockaddr *)&to, sizeof(to), destination)->source;
	}
	return result;
}

/* usrsctp would read the interfaces once, by their names; it gets them from change() instead. */
int getifaddrs(struct ifaddrs **list)
{
	*list = NULL;
	errno = ENOTSUP;
	return -1;
}
