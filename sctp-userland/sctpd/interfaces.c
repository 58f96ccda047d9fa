#include "interfaces.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bound.h"
#include "usrsctp_internal.h"

#define BUCKETS 1024 /* power of two */

static struct address *addresses, *by_entry[BUCKETS];
static unsigned int admitted; /* their number */
static uint32_t round_number; /* of telling all of them */

struct address *interfaces_known(const struct sockaddr_in6 *address)
{
	struct address *entry = addresses;

	while (entry != NULL && !address_same((struct sockaddr *)&entry->value, (const struct sockaddr *)address))
		entry = entry->next;
	return entry;
}

/* The link to the one that has this entry of usrsctp's, or to none. */
static struct address **link_of(const struct sctp_ifa *entry)
{
	struct address **link = &by_entry[(uintptr_t)entry >> 6 & (BUCKETS - 1)];

	while (*link != NULL && (*link)->admitted != entry)
		link = &(*link)->next_admitted;
	return link;
}

void interfaces_admit(struct address *address, const struct sctp_ifa *entry)
{
	if (entry == NULL)
		return;
	address->admitted = entry;
	*link_of(entry) = address; /* the end of its list */
	admitted++;
}

unsigned int interfaces_admitted_count(void)
{
	return admitted;
}

const struct sockaddr *interfaces_admitted(const struct sctp_ifa *entry)
{
	const struct address *address = admitted > 0 ? *link_of(entry) : NULL;

	return address != NULL ? (const struct sockaddr *)&address->value : NULL;
}

void interfaces_forget(struct address *address)
{
	struct address **link;

	if (address->admitted != NULL) {
		*link_of(address->admitted) = address->next_admitted;
		admitted--;
	}
	for (link = &addresses; *link != address;)
		link = &(*link)->next;
	*link = address->next;
	free(address);
}

/* It judges by the name: on an interface called "lo..." every address is loopback, and is not told to peers elsewhere. A kernel judges
 * by the address, so 127.0.0.1 and ::1 stand on an interface "lo" of their own here, and all others on one that isn't. */
unsigned int interfaces_in_usrsctp(unsigned int interface, const struct sockaddr_in6 *address, char *name, size_t room)
{
	const bool loopback = address_is_loopback((const struct sockaddr *)address);

	snprintf(name, room, loopback ? "lo%u" : "interface%u", interface);
	return loopback ? interface | 0x40000000 : interface;
}

void interfaces_change(bool add, unsigned int interface, const struct sockaddr_in6 *address)
{
	struct address **link, *found;
	char name[INTERFACE_NAME]; /* not the real one */
	struct sockaddr_in6 value = { .sin6_family = address->sin6_family }; /* nothing but the address */
	unsigned int usrsctp_index;

	if (address->sin6_family == AF_INET)
		((struct sockaddr_in *)&value)->sin_addr = ((const struct sockaddr_in *)address)->sin_addr;
	else
		value.sin6_addr = address->sin6_addr;
	if (address_is_link_local((struct sockaddr *)&value))
		value.sin6_scope_id = interface;
	found = add ? interfaces_known(&value) : NULL;
	if (found != NULL && found->admitted != NULL)
		interfaces_forget(found); /* now it does stand on an interface */
	for (link = &addresses; *link != NULL; link = &(*link)->next)
		if ((*link)->interface == interface && memcmp(&(*link)->value, &value, sizeof(value)) == 0)
			break;
	usrsctp_index = interfaces_in_usrsctp(interface, &value, name, sizeof(name));
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
		interfaces_forget(*link);
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
			interfaces_change(false, entry->interface, &entry->value);
	}
}

unsigned int interfaces_index_of(const struct sockaddr_in6 *address)
{
	const struct address *entry = interfaces_known(address);

	return entry != NULL ? entry->interface : 0;
}

struct address *interfaces_first(void)
{
	return addresses;
}

/* usrsctp would read the interfaces once, by their names; it gets them from change() instead. */
int getifaddrs(struct ifaddrs **list)
{
	*list = NULL;
	errno = ENOTSUP;
	return -1;
}
