/* Associations that go on after their socket was closed, until all has been sent and the peer has agreed to the end: whose they are. */
#include <stdlib.h>

#include "sockets.h"
#include "stack.h"
#include "usrsctp_internal.h"

#define BUCKETS 1024 /* power of two */

struct closed {
	struct closed *next;
	const struct sctp_tcb *association;
	struct client *client;
	uint16_t port, peer_port;
	struct stack_use use; /* when the socket was closed: the most it is from then on */
};

static struct closed *by_association[BUCKETS];

static struct closed **bucket_of(const struct sctp_tcb *association)
{
	return &by_association[(uintptr_t)association >> 6 & (BUCKETS - 1)];
}

bool closed_keep(const struct sctp_socket *s, struct socket *so, sctp_assoc_t association)
{
	struct stack_use use = { 0 };
	sctp_assoc_t identifier = stack_measure_association(so, association, s->out_streams, &use);
	const struct sctp_tcb *tcb = identifier != 0 ? sctp_findassociation_ep_asocid(so->protocol_block, identifier, 0) : NULL;
	struct closed *kept, **bucket;
	struct sockaddr *peer = NULL;

	if (tcb == NULL)
		return true;
	kept = malloc(sizeof(*kept));
	if (kept == NULL)
		return false;
	bucket = bucket_of(tcb);
	*kept = (struct closed){ *bucket, tcb, s->client, s->port, 0, use };
	*bucket = kept;
	if (usrsctp_getpaddrs(so, identifier, &peer) > 0)
		kept->peer_port = address_port(peer);
	if (peer != NULL)
		usrsctp_freepaddrs(peer);
	client_keeps_closed(s->client, &use);
	return true;
}

bool closed_has_association(uint16_t port, struct sockaddr *peer)
{
	const struct closed *one;
	size_t i;

	for (i = 0; i < BUCKETS; i++)
		for (one = by_association[i]; one != NULL; one = one->next)
			if (one->port == port && one->peer_port == address_port(peer) &&
			    sctp_findnet((struct sctp_tcb *)(uintptr_t)one->association, peer) != NULL)
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
	client_lost_closed(ended->client, &ended->use);
	free(ended);
}
