/* Local addresses that stand on no interface (127.0.0.2, routes of type local). usrsctp must be told of those that are used. */
#include "admitted.h"

#include <errno.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bound.h"
#include "interfaces.h"
#include "loop.h"
#include "netlink.h"
#include "sockets.h"
#include "usrsctp_internal.h"

#define ADMITTED_MAX 1024
#define SWEEP_MS 1000

/* usrsctp's name for where admitted addresses stand. */
static unsigned int nowhere(char *name, size_t room)
{
	const struct sockaddr_in6 loopback = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };

	return interfaces_in_usrsctp(if_nametoindex("lo"), &loopback, name, room);
}

/* Known it is from then on to those who bind it, but not to be told to peers for those who bind all: that, usrsctp judges by the interface
 * (and below); whether it may be a source address for them, by what that was when the address was new. */
static void admit(const struct sockaddr_in6 *address)
{
	unsigned int usrsctp_index;
	struct address *entry;
	char name[INTERFACE_NAME];

	interfaces_change(true, if_nametoindex("lo"), address);
	entry = interfaces_known(address);
	if (entry == NULL)
		return; /* no memory */
	usrsctp_index = nowhere(name, sizeof(name));
	interfaces_admit(entry, sctp_add_addr_to_vrf(0, NULL, usrsctp_index, 0, name, NULL, (struct sockaddr *)&entry->value, 0, 0));
}

static int compare(const void *first, const void *second)
{
	const struct sockaddr_in6 *one = &(*(struct address *const *)first)->value, *other = &(*(struct address *const *)second)->value;

	if (one->sin6_family != other->sin6_family)
		return one->sin6_family < other->sin6_family ? -1 : 1;
	if (one->sin6_family == AF_INET)
		return memcmp(&((const struct sockaddr_in *)one)->sin_addr, &((const struct sockaddr_in *)other)->sin_addr,
			      sizeof(struct in_addr));
	return memcmp(&one->sin6_addr, &other->sin6_addr, sizeof(one->sin6_addr));
}

/* Find out which of them are bound, looking once at each socket. */
static void note_bound(void)
{
	static struct address *sorted[ADMITTED_MAX];
	struct address *entry, wanted, *key = &wanted;
	const struct sctp_socket *s;
	size_t number = 0;
	int i;

	for (entry = interfaces_first(); entry != NULL; entry = entry->next) {
		entry->bound = false;
		if (entry->admitted != NULL && number < ADMITTED_MAX)
			sorted[number++] = entry;
	}
	qsort(sorted, number, sizeof(*sorted), compare);
	for (s = sockets_first(); s != NULL; s = s->next)
		for (i = 0; i < s->bound_count; i++) {
			struct address **found;

			wanted.value = s->bound[i];
			found = bsearch(&key, sorted, number, sizeof(*sorted), compare);
			if (found != NULL)
				(*found)->bound = true;
		}
}

/* Forget those that nobody has bound. */
static void sweep(void)
{
	static uint64_t swept_ms;
	struct address *entry, *next;
	char name[INTERFACE_NAME];

	if (loop_now_ms() - swept_ms < SWEEP_MS)
		return;
	swept_ms = loop_now_ms();
	note_bound();
	for (entry = interfaces_first(); entry != NULL; entry = next) {
		next = entry->next;
		if (entry->admitted == NULL || entry->bound)
			continue;
		sctp_del_addr_from_vrf(0, (struct sockaddr *)&entry->value, nowhere(name, sizeof(name)), name);
		interfaces_forget(entry);
	}
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

void admitted_add(const struct sockaddr *address)
{
	struct sockaddr_in6 local = address_unmapped(address);
	const socklen_t length = address_length((struct sockaddr *)&local);
	int fd;

	local.sin6_port = 0;
	if (length == 0 || address_is_any((struct sockaddr *)&local) || interfaces_known(&local) != NULL)
		return;
	if (interfaces_admitted_count() >= ADMITTED_MAX)
		sweep();
	if (interfaces_admitted_count() >= ADMITTED_MAX)
		return;
	netlink_catch_up(); /* it may have come just now */
	if (interfaces_known(&local) != NULL)
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
	const struct sockaddr *address = telling == NULL ? NULL : interfaces_admitted(ifa);
	struct scope wider;

	if (address == NULL)
		return library.is_address_in_scope(ifa, scope, update);
	if (telling_of == NOT_ASKED)
		telling_of = sockets_bind_all(telling) ? BINDS_ALL : BINDS_SOME;
	if (telling_of == BINDS_ALL)
		return 0;
	wider = *scope;
	wider.loopback |= !address_is_loopback(address);
	return library.is_address_in_scope(ifa, &wider, update);
}

/* Packets to an address that nobody has bound yet go to this host nevertheless, from one of its loopback addresses. */
int sctp_is_address_on_local_host(struct sockaddr *address, uint32_t vrf)
{
	return library.is_address_on_local_host(address, vrf) || address_is_loopback(address);
}
