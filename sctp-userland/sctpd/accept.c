#include <errno.h>
#include <stdlib.h>

#include "accept.h"
#include "close.h"
#include "inbound.h"
#include "sockets.h"
#include "usrsctp_internal.h"

/* As many as Linux takes: one more than listen() said. usrsctp counts only those that aren't here yet; from then on it refuses. */
void socket_limit_waiting(struct sctp_socket *s)
{
	int room = s->backlog + 1 - s->waiting_count;

	s->so->queue_limit = (unsigned short)(room > 0 ? room : 0);
}

void sockets_doubt_telling(void)
{
	struct sctp_socket *s;

	for (s = sockets_first(); s != NULL; s = s->next)
		if (s->waiting_told > 0 || s->asking_told) {
			s->telling_doubted = true;
			socket_look(s);
		}
}

/* Take what usrsctp has accepted, and tell the client how often it may ask. */
void socket_accept_all(struct sctp_socket *s)
{
	const struct inbound told = { .type = INBOUND_ACCEPT, .flags = INBOUND_EOR };

	while (s->waiting_count <= s->backlog) {
		struct waiting *waiting = calloc(1, sizeof(*waiting)), **link;

		if (waiting == NULL)
			break;
		waiting->peer_length = sizeof(waiting->peer);
		waiting->so = usrsctp_accept(s->so, (struct sockaddr *)&waiting->peer, &waiting->peer_length);
		if (waiting->so == NULL) {
			int error = errno;

			free(waiting);
			if (error == EAGAIN)
				break;
			continue; /* that one broke before it was accepted */
		}
		for (link = &s->waiting; *link != NULL;)
			link = &(*link)->next;
		*link = waiting;
		s->waiting_count++;
	}
	socket_limit_waiting(s);
	if (s->telling_doubted && s->unsent == NULL && inbound_all_read(s)) {
		s->telling_doubted = false;
		s->waiting_told = 0; /* who is about to ask finds it all the same, and who is told once too often waits again */
	}
	while (s->unsent == NULL && s->waiting_told < s->waiting_count) {
		s->waiting_told++;
		socket_push(s, &told, NULL, 0);
	}
}

void socket_forget_first_waiting(struct sctp_socket *s)
{
	struct waiting *waiting = s->waiting;

	s->waiting = waiting->next;
	s->waiting_count--;
	socket_limit_waiting(s);
	free(waiting);
}

void socket_drop_waiting(struct sctp_socket *s)
{
	while (s->waiting != NULL) {
		close_stack_socket(s, s->waiting->so, false);
		socket_forget_first_waiting(s);
	}
}
