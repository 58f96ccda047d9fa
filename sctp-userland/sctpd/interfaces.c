/* The addresses of this host that usrsctp is to know: those on interfaces, of which the kernel tells by netlink; and those that stand on none
 * (127.0.0.2, routes of type local) but were bound, which are admitted for that. */
#include "interfaces.h"

#include <errno.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bound.h"
#include "limits.h"
#include "loop.h"
#include "routes.h"
#include "usrsctp_internal.h"

#define BUCKETS 1024 /* power of two */
#define ADMITTED_MAX 1024
#define NAME_SIZE 32

struct address {
	struct address *next, *next_admitted;
	unsigned int interface;
	struct sockaddr_in6 value; /* or sockaddr_in; without a port */
	bool is_admitted; /* it stands on no interface; `interface` is that of loopback */
	const struct sctp_ifa *entry; /* usrsctp's own of one that is admitted */
	uint32_t told, bound; /* the last round of telling all that told of it, or was before; the last sweep that found it bound */
};

static struct address *addresses[BUCKETS], *by_entry[BUCKETS];
static unsigned int admitted_count;
static uint32_t round_number, sweep_number;

static struct address **bucket_of(const struct sockaddr_in6 *address)
{
	return &addresses[address_hash((const struct sockaddr *)address) & (BUCKETS - 1)];
}

static bool is(const struct address *entry, const struct sockaddr_in6 *address)
{
	return address_same((const struct sockaddr *)&entry->value, (const struct sockaddr *)address);
}

static struct address *known(const struct sockaddr_in6 *address)
{
	struct address *entry = *bucket_of(address);

	while (entry != NULL && !is(entry, address))
		entry = entry->next;
	return entry;
}

bool interfaces_have(const struct sockaddr_in6 *address)
{
	return known(address) != NULL;
}

unsigned int interfaces_index_of(const struct sockaddr_in6 *address)
{
	const struct address *entry = known(address);

	return entry != NULL ? entry->interface : 0;
}

/* The link to the admitted one that has this entry of usrsctp's, or to none. */
static struct address **admitted(const struct sctp_ifa *entry)
{
	struct address **link = &by_entry[(uintptr_t)entry >> 6 & (BUCKETS - 1)];

	while (*link != NULL && (*link)->entry != entry)
		link = &(*link)->next_admitted;
	return link;
}

static void forget(struct address **link)
{
	struct address *address = *link;

	if (address->is_admitted) {
		*admitted(address->entry) = address->next_admitted;
		admitted_count--;
	}
	*link = address->next;
	free(address);
}

/* Under which index and name usrsctp is to know an address. It judges by the name: on an interface called "lo..." every address is loopback, and is
 * not told to peers elsewhere. A kernel judges by the address, so 127.0.0.1 and ::1 stand on an interface "lo" of their own here, and all others on
 * one that isn't. */
static unsigned int in_usrsctp(const struct address *address, char name[NAME_SIZE])
{
	const bool loopback = address->is_admitted || address_is_loopback((const struct sockaddr *)&address->value);

	snprintf(name, NAME_SIZE, loopback ? "lo%u" : "interface%u", address->interface); /* not the real one */
	return loopback ? address->interface | 0x40000000 : address->interface;
}

/* Tell usrsctp of it; return usrsctp's entry. */
static const struct sctp_ifa *add(struct address *address)
{
	char name[NAME_SIZE];
	const unsigned int index = in_usrsctp(address, name);

	return sctp_add_addr_to_vrf(0, NULL, index, 0, name, NULL, (struct sockaddr *)&address->value, 0, 0);
}

/* usrsctp knows an address once, on the interface that was told of last. */
static void take_away(struct address **link)
{
	char name[NAME_SIZE];
	const unsigned int index = in_usrsctp(*link, name);
	struct sockaddr_in6 address = (*link)->value;
	struct address *elsewhere;

	forget(link);
	elsewhere = known(&address);
	if (elsewhere != NULL)
		add(elsewhere);
	else
		sctp_del_addr_from_vrf(0, (struct sockaddr *)&address, index, name);
}

static void take_away_all(bool (*is_gone)(const struct address *address))
{
	struct address **link;
	size_t i;

	for (i = 0; i < BUCKETS; i++)
		for (link = &addresses[i]; *link != NULL;)
			if (is_gone(*link))
				take_away(link);
			else
				link = &(*link)->next;
}

/* It stands on this interface now, or no more. */
static void change(bool stands, unsigned int interface, const struct sockaddr_in6 *address)
{
	struct address **link = bucket_of(address), *entry;

	while ((entry = *link) != NULL && !(is(entry, address) && (entry->is_admitted || entry->interface == interface)))
		link = &entry->next;
	if (entry != NULL && !stands) {
		take_away(link);
	} else if (entry != NULL && !entry->is_admitted) {
		entry->told = round_number;
	} else if (stands) {
		if (entry != NULL)
			forget(link); /* usrsctp finds it elsewhere now */
		entry = calloc(1, sizeof(*entry));
		if (entry == NULL)
			return;
		*entry = (struct address){ .next = *link, .interface = interface, .value = *address, .told = round_number };
		if (address_is_link_local((const struct sockaddr *)address))
			entry->value.sin6_scope_id = interface;
		*link = entry;
		add(entry);
	}
}

static bool is_untold(const struct address *address)
{
	return address->told != round_number && !address->is_admitted;
}

/* usrsctp would read the interfaces once, by their names; it is told here instead. */
int getifaddrs(struct ifaddrs **list)
{
	*list = NULL;
	errno = ENOTSUP;
	return -1;
}

static void ready(struct watch *watch, uint32_t events);
static struct watch netlink = { -1, EPOLLIN, ready };
static uint32_t dump;	      /* number of the last one asked for */
static bool dumping, missed; /* it goes on; something was lost, or changed while it was told */

static void address_message(const struct nlmsghdr *header)
{
	const struct ifaddrmsg *message = NLMSG_DATA(header);
	int left = (int)header->nlmsg_len - (int)NLMSG_LENGTH(sizeof(*message));
	const void *address = NULL, *local = NULL;
	struct sockaddr_in6 value = { 0 };
	struct rtattr *attribute;

	for (attribute = IFA_RTA(message); RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
		if (attribute->rta_type == IFA_ADDRESS)
			address = RTA_DATA(attribute);
		else if (attribute->rta_type == IFA_LOCAL)
			local = RTA_DATA(attribute);
	}
	if (local == NULL)
		local = address;
	if (local == NULL || (message->ifa_family != AF_INET && message->ifa_family != AF_INET6))
		return;
	value.sin6_family = message->ifa_family;
	if (message->ifa_family == AF_INET)
		memcpy(&((struct sockaddr_in *)&value)->sin_addr, local, sizeof(struct in_addr));
	else
		memcpy(&value.sin6_addr, local, sizeof(value.sin6_addr));
	change(header->nlmsg_type == RTM_NEWADDR, message->ifa_index, &value);
}

/* Ask for all addresses; what isn't told of until its end is gone. The kernel answers one such question at a time. */
static int ask_for_all(void)
{
	struct {
		struct nlmsghdr header;
		struct rtgenmsg body;
	} request = { { NLMSG_LENGTH(sizeof(struct rtgenmsg)), RTM_GETADDR, NLM_F_REQUEST | NLM_F_DUMP, dump + 1, 0 }, { AF_UNSPEC } };

	if (send(netlink.fd, &request, request.header.nlmsg_len, 0) < 0)
		return -errno;
	dump++;
	dumping = true;
	round_number++;
	return 0;
}

static void message(const struct nlmsghdr *header)
{
	if (header->nlmsg_type == RTM_NEWADDR || header->nlmsg_type == RTM_DELADDR)
		address_message(header);
	if (header->nlmsg_seq != dump)
		return;
	missed |= header->nlmsg_flags & NLM_F_DUMP_INTR;
	if (header->nlmsg_type != NLMSG_DONE && header->nlmsg_type != NLMSG_ERROR)
		return;
	dumping = false;
	if (header->nlmsg_type == NLMSG_ERROR)
		log_line("the kernel doesn't tell all addresses");
	else if (!missed)
		take_away_all(is_untold);
}

static void ready(struct watch *watch, uint32_t)
{
	char buffer[32768] __attribute__((aligned(NLMSG_ALIGNTO)));
	ssize_t length;

	for (;;) {
		struct nlmsghdr *header;
		unsigned int left;

		length = recv(watch->fd, buffer, sizeof(buffer), MSG_DONTWAIT);
		if (length > 0) {
			routes_forget();
			left = (unsigned int)length;
			for (header = (struct nlmsghdr *)buffer; NLMSG_OK(header, left); header = NLMSG_NEXT(header, left))
				message(header);
		} else if (length < 0 && errno == ENOBUFS) {
			routes_forget();
			missed = true; /* and until all that is there has been read, more is lost without a word */
		} else if (missed && !dumping && ask_for_all() == 0) {
			missed = false;
		} else {
			break;
		}
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

/* Those that stand on none. */

/* Known it is from then on to those who bind it, but not to be told to peers for those who bind all: that, usrsctp judges by the interface
 * (and below); whether it may be a source address for them, by what that was when the address was new. */
static void admit(const struct sockaddr_in6 *address)
{
	struct address *made;

	change(true, if_nametoindex("lo"), address);
	made = known(address);
	if (made == NULL)
		return; /* no memory */
	made->is_admitted = true;
	made->entry = add(made);
	made->is_admitted = made->entry != NULL;
	if (!made->is_admitted)
		return;
	*admitted(made->entry) = made; /* the end of its list */
	admitted_count++;
}

static bool is_unused(const struct address *address)
{
	return address->is_admitted && address->bound != sweep_number;
}

/* Forget those that nobody has bound, looking once at each socket. */
static void sweep(void)
{
	const struct sctp_socket *s;
	struct address *entry;
	int i;

	sweep_number++;
	for (s = sockets_first(); s != NULL; s = s->next)
		for (i = 0; i < s->bound_count; i++)
			if ((entry = known(&s->bound[i])) != NULL)
				entry->bound = sweep_number;
	take_away_all(is_unused);
}

/* Whether it is a host's: bind() takes those of groups as well, but connect() none of a link's. */
static bool is_unicast(const struct sockaddr *address, socklen_t length)
{
	bool refused;
	int fd;

	if (address->sa_family == AF_INET6)
		return !IN6_IS_ADDR_MULTICAST(&((const struct sockaddr_in6 *)address)->sin6_addr);
	if (IN_MULTICAST(ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr)) ||
	    ((const struct sockaddr_in *)address)->sin_addr.s_addr == INADDR_BROADCAST)
		return false;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	refused = fd < 0 || (connect(fd, address, length) < 0 && errno == EACCES);
	if (fd >= 0)
		close(fd);
	return !refused;
}

void interfaces_admit(const struct sockaddr *address)
{
	struct sockaddr_in6 local = address_unmapped(address);
	const socklen_t length = address_length((struct sockaddr *)&local);
	int fd;

	local.sin6_port = 0;
	if (local.sin6_family == AF_INET6)
		local.sin6_flowinfo = local.sin6_scope_id = 0;
	if (length == 0 || address_is_any((struct sockaddr *)&local) || known(&local) != NULL)
		return;
	if (admitted_count >= ADMITTED_MAX)
		sweep();
	if (limits_refuse(LIMIT_ADDRESSES, admitted_count >= ADMITTED_MAX))
		return;
	ready(&netlink, EPOLLIN); /* it may have come just now */
	if (known(&local) != NULL)
		return;
	fd = socket(local.sin6_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	if (bind(fd, (struct sockaddr *)&local, length) == 0 && is_unicast((struct sockaddr *)&local, length)) /* the kernel knows it */
		admit(&local);
	close(fd);
}

/* Which addresses a peer is told (INIT, INIT ACK), and which peers are on this host. The library judges by the interface; an address that stands
 * on none is told by who has bound it, and by nobody else. */

static const void *telling; /* the endpoint for which addresses are told, NULL: none */
static enum { NOT_ASKED, BINDS_SOME, BINDS_ALL } telling_of;

struct mbuf *sctp_add_addresses_to_i_ia(void *endpoint, struct sctp_tcb *tcb, struct scope *scope, struct mbuf *at, int count,
					uint16_t *padding, uint16_t *length)
{
	telling = endpoint;
	telling_of = NOT_ASKED;
	at = library.add_addresses_to_i_ia(endpoint, tcb, scope, at, count, padding, length);
	telling = NULL;
	return at;
}

int sctp_is_address_in_scope(struct sctp_ifa *ifa, struct scope *scope, int update)
{
	const struct address *address = telling == NULL || admitted_count == 0 ? NULL : *admitted(ifa);
	struct scope wider;

	if (address == NULL)
		return library.is_address_in_scope(ifa, scope, update);
	if (telling_of == NOT_ASKED)
		telling_of = sockets_bind_all(telling) ? BINDS_ALL : BINDS_SOME;
	if (telling_of == BINDS_ALL)
		return 0;
	wider = *scope;
	wider.loopback |= !address_is_loopback((const struct sockaddr *)&address->value);
	return library.is_address_in_scope(ifa, &wider, update);
}

/* Packets to an address that nobody has bound yet go to this host nevertheless, from one of its loopback addresses. */
int sctp_is_address_on_local_host(struct sockaddr *address, uint32_t vrf)
{
	return library.is_address_on_local_host(address, vrf) || address_is_loopback(address);
}
