/* What goes to the client through our end of its descriptor. One message at most waits here when there is no room. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sockets.h"

bool socket_push(struct sctp_socket *s, const struct inbound *header, const char *bytes, size_t length)
{
	struct iovec vector[2] = { { (void *)(uintptr_t)header, sizeof(*header) }, { (void *)(uintptr_t)bytes, length } };
	struct msghdr message = { .msg_iov = vector, .msg_iovlen = 2 };

	if (s->unsent == NULL && sendmsg(s->watch.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		return true;
	if (s->unsent == NULL && errno != EAGAIN)
		return true; /* the client is gone; hang-up comes */
	if (s->unsent != NULL || (s->unsent = malloc(sizeof(*header) + length)) == NULL)
		return false;
	memcpy(s->unsent, header, sizeof(*header));
	memcpy(s->unsent + sizeof(*header), bytes, length);
	s->unsent_length = sizeof(*header) + length;
	loop_change(&s->watch, s->watch.events | EPOLLOUT);
	return false;
}

bool socket_push_unsent(struct sctp_socket *s)
{
	if (s->unsent == NULL)
		return true;
	if (send(s->watch.fd, s->unsent, s->unsent_length, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == EAGAIN)
		return false;
	free(s->unsent);
	s->unsent = NULL;
	s->unsent_length = 0;
	loop_change(&s->watch, s->watch.events & ~(uint32_t)EPOLLOUT);
	return true;
}
