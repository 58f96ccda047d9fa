/* Associations that go on after their socket was closed, until all has been sent and the peer has agreed to the end. */
#include <stdlib.h>

#include "sockets.h"
#include "stack.h"
#include "usrsctp_internal.h"

#define BUCKETS 1024 /* power of two */

struct closed {
	struct closed *next;
	struct sctp_tcb *association;
	uint16_t port, peer_port; /* host order */
};

static struct closed *by_association[BUCKETS];

static struct closed **bucket_of(const struct sctp_tcb *association)
{
	return &by_association[(uintptr_t)association >> 6 & (BUCKETS - 1)];
}

bool closed_keep(const struct sctp_socket *s, struct socket *so, sctp_assoc_t identifier)
{
	struct sctp_tcb *tcb = sctp_findassociation_ep_asocid(so->protocol_block, identifier, 0);
	struct sockaddr *peer = NULL;
	struct closed *kept, **bucket;

	if (tcb == NULL || usrsctp_getpaddrs(so, identifier, &peer) <= 0)
		return true;
	kept = malloc(sizeof(*kept));
	if (kept != NULL) {
		bucket = bucket_of(tcb);
		*kept = (struct closed){ *bucket, tcb, s->port, address_port(peer) };
		*bucket = kept;
	}
	usrsctp_freepaddrs(peer);
	return kept != NULL;
}

bool closed_has_association(uint16_t port, struct sockaddr *peer)
{
	const struct closed *one;
	size_t i;

	for (i = 0; i < BUCKETS; i++)
		for (one = by_association[i]; one != NULL; one = one->next)
			if (one->port == port && one->peer_port == address_port(peer) && sctp_findnet(one->association, peer) != NULL)
				return true;
	return false;
}

void closed_ended(const struct sctp_tcb *tcb)
{
	struct closed **link, *ended;

	for (link = bucket_of(tcb); *link != NULL && (*link)->association != tcb;)
		link = &(*link)->next;
	ended = *link;
	if (ended == NULL)
		return;
	*link = ended->next;
	free(ended);
}
