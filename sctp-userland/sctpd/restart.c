/* A peer that restarts with fewer addresses: the library (0.9.5) frees those that it dropped, and goes on using them as the place the last
 * packets came from (its next version forgets them, as is done here). */
#define _GNU_SOURCE
#include "restart.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "usrsctp_internal.h"

#define ADDRESSES_MAX 256

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

int sctp_load_addresses_from_init(struct sctp_tcb *association, struct mbuf *m, int offset, int limit, struct sockaddr *source,
				  struct sockaddr *destination, struct sockaddr *instead_of_source, uint16_t port)
{
	struct sctp_nets *before[ADDRESSES_MAX], *address;
	int count = 0, i, result;

	if (list_at == 0)
		learn_place(association, instead_of_source != NULL ? instead_of_source : source);
	for (address = first_address(association); address != NULL && count < ADDRESSES_MAX; address = address->next)
		before[count++] = address;
	result = library_load(association, m, offset, limit, source, destination, instead_of_source, port);
	for (i = 0; i < count; i++)
		if (!has_address(association, before[i]))
			forget(association, before[i]);
	return result;
}
