#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sockets.h"

/* Take what usrsctp has accepted; the client gets a token to read for each. */
void socket_accept_all(struct sctp_socket *s)
{
	static uint64_t next_token;

	while (s->unsent == NULL && s->waiting_count <= s->backlog) {
		struct waiting *waiting = calloc(1, sizeof(*waiting)), **link;
		struct inbound token = { .type = INBOUND_ACCEPT, .flags = INBOUND_EOR };

		if (waiting == NULL)
			return;
		waiting->peer_length = sizeof(waiting->peer);
		waiting->so = usrsctp_accept(s->so, (struct sockaddr *)&waiting->peer, &waiting->peer_length);
		if (waiting->so == NULL) {
			int error = errno;

			free(waiting);
			if (error == EAGAIN)
				return;
			continue; /* that one broke before it was accepted */
		}
		token.token = waiting->token = ++next_token;
		for (link = &s->waiting; *link != NULL;)
			link = &(*link)->next;
		*link = waiting;
		s->waiting_count++;
		socket_push(s, &token, NULL, 0);
	}
}

struct waiting *socket_take_waiting(struct sctp_socket *s, uint64_t token)
{
	struct waiting **link, *found;

	for (link = &s->waiting; *link != NULL; link = &(*link)->next) {
		if ((*link)->token != token)
			continue;
		found = *link;
		*link = found->next;
		s->waiting_count--;
		socket_look(s); /* the backlog has room again */
		return found;
	}
	return NULL;
}

void socket_drop_waiting(struct sctp_socket *s)
{
	while (s->waiting != NULL) {
		struct waiting *waiting = s->waiting;

		s->waiting = waiting->next;
		close_stack_socket(waiting->so, false);
		free(waiting);
	}
	s->waiting_count = 0;
}
