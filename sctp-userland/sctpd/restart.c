/* A peer that restarts with fewer addresses: the library (0.9.5) frees those that it dropped, and goes on using them: as the place the last
 * packets came from (its next version forgets these, as is done here), and the one this packet came from for what else is in the packet. So
 * that one is kept: the cookie came back from there, which proves the peer to be there. */
#include "restart.h"

#include <dlfcn.h>
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

static int (*library_load)(struct sctp_tcb *, struct mbuf *, int, int, struct sockaddr *, struct sockaddr *, struct sockaddr *, uint16_t);
static size_t list_at; /* where in an association its list of addresses begins, 0: not known yet */

bool restart_prepare(void)
{
	*(void **)&library_load = dlsym(RTLD_NEXT, "sctp_load_addresses_from_init");
	return library_load != NULL;
}

/* The first address of a new association shows where the list begins: it points back there. */
static void learn_place(struct sctp_tcb *association, struct sockaddr *source)
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

static bool has_address(struct sctp_tcb *association, const struct sctp_nets *sought)
{
	const struct sctp_nets *address = first_address(association);

	while (address != NULL && address != sought)
		address = address->next;
	return address != NULL;
}

static void forget(struct sctp_tcb *association, const struct sctp_nets *freed)
{
	const struct sctp_nets **word = (const struct sctp_nets **)(void *)association;
	size_t words = malloc_usable_size(association) / sizeof(*word), i;

	for (i = 0; i < words; i++)
		if (word[i] == freed)
			word[i] = NULL;
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

/* The parameters of the INIT in `m` with this address before them; *limit: where they end. NULL: no memory. */
static struct mbuf *with_address(const struct mbuf *m, int offset, int *limit, const struct sockaddr *address)
{
	char first[PARAMETER_HEADER + sizeof(struct in6_addr)], *all;
	int length = *limit > offset ? *limit - offset : 0, before = parameter(first, address);
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
	free(all);
	*limit = before + length;
	return buffers;
}

int sctp_load_addresses_from_init(struct sctp_tcb *association, struct mbuf *m, int offset, int limit, struct sockaddr *source,
				  struct sockaddr *destination, struct sockaddr *instead_of_source, uint16_t port)
{
	struct sctp_nets *before[ADDRESSES_MAX], *address;
	struct mbuf *extended = NULL;
	int count = 0, i, result;

	if (list_at == 0)
		learn_place(association, instead_of_source != NULL ? instead_of_source : source);
	for (address = first_address(association); address != NULL && count < ADDRESSES_MAX; address = address->next)
		before[count++] = address;
	if (instead_of_source != NULL && sctp_findnet(association, source) != NULL) {
		extended = with_address(m, offset, &limit, source);
		if (extended == NULL)
			return -1;
		m = extended;
		offset = 0;
	}
	result = library_load(association, m, offset, limit, source, destination, instead_of_source, port);
	if (extended != NULL)
		m_freem(extended);
	for (address = first_address(association); address != NULL; address = address->next)
		limits_note(PATH_COST);
	for (i = 0; i < count; i++)
		if (!has_address(association, before[i]))
			forget(association, before[i]);
	return result;
}
