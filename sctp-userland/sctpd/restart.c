/* A peer that restarts with fewer addresses: the library (0.9.5) frees those that it dropped, and goes on using them: as the place the last
 * packets came from, and the one this packet came from for what else is in the packet. So they are taken out before, by the library's own function
 * for that (it is there for ASCONF), which leaves nothing that leads to them. The one this packet came from is kept: the cookie came back from
 * there, which proves the peer to be there. */
#include <malloc.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "limits.h"
#include "packets.h"
#include "usrsctp_internal.h"

#define ADDRESSES_MAX 256
#define IPV4_ADDRESS 5 /* parameters of an INIT */
#define IPV6_ADDRESS 6
#define PARAMETER_HEADER 4
#define PATH_COST 704 /* bytes */

struct kept {
	const struct sctp_nets *list[ADDRESSES_MAX];
	int count;
};

static size_t list_at; /* where in an association its list of addresses begins, 0: not known yet */

/* The first address of a new association shows where the list begins: it points back there. */
static void learn_list_offset(struct sctp_tcb *association, struct sockaddr *source)
{
	const struct sctp_nets *address = sctp_findnet(association, source);
	size_t at;

	if (address == NULL)
		return;
	at = (size_t)((char *)address->previous - (char *)association);
	if (at < malloc_usable_size(association))
		list_at = at;
}

static struct sctp_nets *first_address(struct sctp_tcb *association)
{
	return list_at == 0 ? NULL : *(struct sctp_nets **)((char *)association + list_at);
}

/* The address as a parameter of an INIT; return its length. */
static int parameter(char *to, const struct sockaddr *address)
{
	bool v4 = address->sa_family == AF_INET;
	uint16_t type = htons(v4 ? IPV4_ADDRESS : IPV6_ADDRESS), size = v4 ? sizeof(struct in_addr) : sizeof(struct in6_addr);
	uint16_t length = htons(PARAMETER_HEADER + size);

	memcpy(to, &type, sizeof(type));
	memcpy(to + sizeof(type), &length, sizeof(length));
	if (v4)
		memcpy(to + PARAMETER_HEADER, &((const struct sockaddr_in *)address)->sin_addr, size);
	else
		memcpy(to + PARAMETER_HEADER, &((const struct sockaddr_in6 *)address)->sin6_addr, size);
	return PARAMETER_HEADER + size;
}

/* Note which of the association's addresses this parameter names. */
static void note_kept(struct sctp_tcb *association, const char *value, int type, int size, uint16_t port, struct kept *kept)
{
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = port };
	struct sockaddr_in *v4 = (struct sockaddr_in *)&v6;

	if (type == IPV4_ADDRESS && size == sizeof(v4->sin_addr)) {
		v6 = (struct sockaddr_in6){ .sin6_family = AF_INET, .sin6_port = port };
		memcpy(&v4->sin_addr, value, sizeof(v4->sin_addr));
	} else if (type == IPV6_ADDRESS && size == sizeof(v6.sin6_addr)) {
		memcpy(&v6.sin6_addr, value, sizeof(v6.sin6_addr));
	} else {
		return;
	}
	if (kept->count < ADDRESSES_MAX)
		kept->list[kept->count++] = sctp_findnet(association, (struct sockaddr *)&v6);
}

static bool is_kept(const struct kept *kept, const struct sctp_nets *address)
{
	int i;

	for (i = 0; i < kept->count && kept->list[i] != address;)
		i++;
	return i < kept->count;
}

/* Take out the addresses that these parameters of an INIT don't name, but for the one that it came from. */
static void remove_dropped(struct sctp_tcb *association, const char *parameters, int length, struct sockaddr *init_source)
{
	const uint16_t port = ((const struct sockaddr_in *)init_source)->sin_port;
	struct sctp_nets *address, *next;
	struct kept kept = { { sctp_findnet(association, init_source) }, 1 };
	uint16_t header[2]; /* type and length */
	int at;

	for (at = 0; at + PARAMETER_HEADER <= length; at += (ntohs(header[1]) + 3) & ~3) {
		memcpy(header, parameters + at, sizeof(header));
		if (ntohs(header[1]) < PARAMETER_HEADER || at + ntohs(header[1]) > length)
			break;
		note_kept(association, parameters + at + PARAMETER_HEADER, ntohs(header[0]), ntohs(header[1]) - PARAMETER_HEADER, port, &kept);
	}
	for (address = kept.list[0] != NULL ? first_address(association) : NULL; address != NULL; address = next) {
		next = address->next;
		if (!is_kept(&kept, address))
			sctp_remove_net(association, address);
	}
}

/* The parameters of the INIT in `m`, before them the address that this packet came from if it is the association's; *limit: where they end.
 * Addresses that they don't name are taken out. Return NULL: no memory. */
static struct mbuf *prepare(struct sctp_tcb *association, const struct mbuf *m, int offset, int *limit, struct sockaddr *source,
			    struct sockaddr *init_source)
{
	char first[PARAMETER_HEADER + sizeof(struct in6_addr)], *all;
	int length = *limit > offset ? *limit - offset : 0, before = sctp_findnet(association, source) != NULL ? parameter(first, source) : 0;
	struct mbuf *buffers = packets_buffers(before + length);

	all = buffers == NULL ? NULL : malloc((size_t)(before + length));
	if (all == NULL) {
		if (buffers != NULL)
			m_freem(buffers);
		return NULL;
	}
	memcpy(all, first, (size_t)before);
	if (length > 0)
		m_copydata(m, offset, length, all + before);
	m_copyback(buffers, 0, before + length, all);
	remove_dropped(association, all, before + length, init_source);
	free(all);
	*limit = before + length;
	return buffers;
}

int sctp_load_addresses_from_init(struct sctp_tcb *association, struct mbuf *m, int offset, int limit, struct sockaddr *source,
				  struct sockaddr *destination, struct sockaddr *instead_of_source, uint16_t port)
{
	struct sctp_nets *address;
	struct mbuf *extended = NULL;
	int result;

	if (list_at == 0)
		learn_list_offset(association, instead_of_source != NULL ? instead_of_source : source);
	if (instead_of_source != NULL && (limit > offset || sctp_findnet(association, source) != NULL)) {
		extended = prepare(association, m, offset, &limit, source, instead_of_source);
		if (extended == NULL)
			return -1;
		m = extended;
		offset = 0;
	}
	result = library.load_addresses_from_init(association, m, offset, limit, source, destination, instead_of_source, port);
	if (extended != NULL)
		m_freem(extended);
	for (address = first_address(association); address != NULL; address = address->next)
		limits_note(PATH_COST);
	return result;
}
