#define _GNU_SOURCE
#include "interfaces.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loop.h"
#include "sockets.h"
#include "usrsctp_internal.h"

#define ADMITTED_MAX 1024
#define SWEEP_MS 1000
#define BUCKETS 1024 /* power of two */

struct address {
	struct address *next, *next_admitted;
	unsigned int interface;
	struct sockaddr_in6 value; /* or sockaddr_in */
	uint32_t seen; /* the round of telling all that told of it, or what came after */
	uid_t user; /* who had it admitted */
	bool bound; /* when it was last looked */
	const struct sctp_ifa *admitted; /* usrsctp's own entry of one that stands on no interface */
};

static struct address *addresses;
static struct address *by_entry[BUCKETS]; /* those of them that stand on no interface */
static unsigned int admitted;		  /* ... and their number */
static uint32_t round_number; /* of telling all of them */

/* The link to the one that has this entry of usrsctp's, or to none. */
static struct address **place_of(const struct sctp_ifa *entry)
{
	struct address **link = &by_entry[(uintptr_t)entry >> 6 & (BUCKETS - 1)];

	while (*link != NULL && (*link)->admitted != entry)
		link = &(*link)->next_admitted;
	return link;
}

static void not_admitted(struct address *address)
{
	if (address->admitted == NULL)
		return;
	*place_of(address->admitted) = address->next_admitted;
	address->admitted = NULL;
	admitted--;
}

static struct address *known(const struct sockaddr_in6 *address)
{
	struct address *entry;

	for (entry = addresses; entry != NULL; entry = entry->next) {
		if (entry->value.sin6_family != address->sin6_family)
			continue;
		if (address->sin6_family == AF_INET
			    ? ((const struct sockaddr_in *)&entry->value)->sin_addr.s_addr ==
				      ((const struct sockaddr_in *)address)->sin_addr.s_addr
			    : IN6_ARE_ADDR_EQUAL(&entry->value.sin6_addr, &address->sin6_addr))
			break;
	}
	return entry;
}

static void forget(struct address *address)
{
	struct address **link;

	not_admitted(address);
	for (link = &addresses; *link != address;)
		link = &(*link)->next;
	*link = address->next;
	free(address);
}

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

void interfaces_change(bool add, unsigned int interface, int family, const void *bytes)
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
	found = add ? known(&value) : NULL;
	if (found != NULL && found->admitted != NULL)
		forget(found); /* now it does stand on an interface */
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
		found->seen = round_number;
		*link = found;
		sctp_add_addr_to_vrf(0, NULL, usrsctp_index, 0, name, NULL, (struct sockaddr *)&value, 0, 0);
	} else if (!add && *link != NULL) {
		forget(*link);
		sctp_del_addr_from_vrf(0, (struct sockaddr *)&value, usrsctp_index, name);
	} else if (add) {
		(*link)->seen = round_number;
	}
}

void interfaces_tell_all(void)
{
	round_number++;
}

void interfaces_told_all(void)
{
	struct address *entry, *next;

	for (entry = addresses; entry != NULL; entry = next) {
		next = entry->next;
		if (entry->seen != round_number && entry->admitted == NULL)
			interfaces_change(false, entry->interface, entry->value.sin6_family,
			       entry->value.sin6_family == AF_INET ? (void *)&((struct sockaddr_in *)&entry->value)->sin_addr
								   : (void *)&entry->value.sin6_addr);
	}
}

unsigned int interfaces_index_of(const struct in6_addr *address)
{
	struct address *entry;

	for (entry = addresses; entry != NULL; entry = entry->next)
		if (entry->value.sin6_family == AF_INET6 && IN6_ARE_ADDR_EQUAL(&entry->value.sin6_addr, address))
			return entry->interface;
	return 0;
}

/* usrsctp's name for where admitted addresses stand. */
static unsigned int nowhere(char *name, size_t room)
{
	const struct sockaddr_in6 loopback = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };

	return usrsctp_interface(if_nametoindex("lo"), &loopback, name, room);
}

/* Known it is from then on to those who bind it, but not to be told to peers for those who bind all: that, usrsctp judges by the interface
 * (and announce.c); whether it may be a source address for them, by what that was when the address was new. */
static void admit(uid_t user, const struct sockaddr_in6 *address)
{
	unsigned int usrsctp_index;
	struct address *entry;
	char name[32];

	interfaces_change(true, if_nametoindex("lo"), address->sin6_family,
	       address->sin6_family == AF_INET ? (const void *)&((const struct sockaddr_in *)address)->sin_addr
					       : (const void *)&address->sin6_addr);
	entry = known(address);
	if (entry == NULL)
		return; /* no memory */
	usrsctp_index = nowhere(name, sizeof(name));
	entry->admitted = sctp_add_addr_to_vrf(0, NULL, usrsctp_index, 0, name, NULL, (struct sockaddr *)&entry->value, 0, 0);
	if (entry->admitted == NULL)
		return;
	entry->user = user;
	*place_of(entry->admitted) = entry; /* the end of its list */
	admitted++;
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

	for (entry = addresses; entry != NULL; entry = entry->next) {
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
	char name[32];

	if (loop_now_ms() - swept_ms < SWEEP_MS)
		return;
	swept_ms = loop_now_ms();
	note_bound();
	for (entry = addresses; entry != NULL; entry = next) {
		next = entry->next;
		if (entry->admitted == NULL || entry->bound)
			continue;
		sctp_del_addr_from_vrf(0, (struct sockaddr *)&entry->value, nowhere(name, sizeof(name)), name);
		forget(entry);
	}
}

const struct sockaddr *interfaces_admitted(const struct sctp_ifa *ifa)
{
	const struct address *entry = admitted > 0 ? *place_of(ifa) : NULL;

	return entry != NULL ? (const struct sockaddr *)&entry->value : NULL;
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

/* Nobody may have more than are left then for others. */
static bool has_share(uid_t user)
{
	const struct address *entry;
	unsigned int has = 0;

	for (entry = addresses; entry != NULL; entry = entry->next)
		has += entry->admitted != NULL && entry->user == user;
	return has < ADMITTED_MAX - admitted;
}

void interfaces_admit(uid_t user, const struct sockaddr *address)
{
	struct sockaddr_in6 local = { 0 };
	socklen_t length = address_length(address);
	int fd;

	memcpy(&local, address, length);
	length = address_unmap(&local);
	local.sin6_port = 0;
	if (length == 0 || address_is_any((struct sockaddr *)&local) || known(&local) != NULL)
		return;
	if (!has_share(user))
		sweep();
	if (!has_share(user))
		return;
	interfaces_catch_up(); /* it may have come just now */
	if (known(&local) != NULL)
		return;
	fd = socket(local.sin6_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	if (bind(fd, (struct sockaddr *)&local, length) == 0 && is_unicast((struct sockaddr *)&local, length)) /* the kernel knows it */
		admit(user, &local);
	close(fd);
}

/* usrsctp would read the interfaces once, by their names; it gets them from change() instead. */
int getifaddrs(struct ifaddrs **list)
{
	*list = NULL;
	errno = ENOTSUP;
	return -1;
}
