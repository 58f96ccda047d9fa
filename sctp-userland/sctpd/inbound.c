/* What goes to the client through our end of its descriptor.
 *
 * At the end it must be known whether the program left data unread, but the kernel then tells only whether it left anything. So a notification
 * never lies behind unread data: it waits here until all data has been read. What lies in the descriptor then is data exactly if the last
 * message that went in was. */
#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "inbound.h"
#include "sockets.h"

#define NOTHING 256           /* bytes, less than any message takes: whoever frees one leaves a byte of it for a moment */
#define BUFFER (512 * 1024)   /* bytes of what lies in a descriptor; the kernel doubles it */
#define OVERHEAD 1024         /* bytes: of a message's headers, and what the kernel keeps for itself */
#define CONNECTING_MAX 1048576 /* bytes taken before there is room, since the outcome of a connect() may be behind them */

struct unsent {
	struct unsent *next;
	size_t length;
	struct inbound header;
	char bytes[];
};

enum outcome { PUSHED, FULL, BEHIND_DATA, NO_MEMORY };

bool inbound_prepare(int fd)
{
	static bool told;
	int size = BUFFER;
	socklen_t length = sizeof(size);

	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)) < 0)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	if (getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, &length) < 0)
		return false;
	if (size >= MESSAGE_MAX + OVERHEAD)
		return true;
	if (!told)
		log_line("no sockets: a message may not fit into a descriptor: set net.core.wmem_max to %d or more, or give CAP_NET_ADMIN",
			 (MESSAGE_MAX + OVERHEAD) / 2);
	told = true;
	errno = ENOBUFS;
	return false;
}

bool inbound_all_read(const struct sctp_socket *s)
{
	int unread = 0;

	return ioctl(s->watch.fd, SIOCOUTQ, &unread) < 0 || unread < NOTHING;
}

static enum outcome push(struct sctp_socket *s, const struct inbound *header, const char *bytes, size_t length)
{
	struct iovec vector[2] = { { (void *)(uintptr_t)header, sizeof(*header) }, { (void *)(uintptr_t)bytes, length } };
	struct msghdr message = { .msg_iov = vector, .msg_iovlen = 2 };

	if (header->type == INBOUND_NOTIFICATION && s->last_was_data && !inbound_all_read(s))
		return BEHIND_DATA;
	if (sendmsg(s->watch.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
		if (errno == EAGAIN)
			return FULL;
		if (errno != EPIPE && errno != ECONNRESET && errno != ENOTCONN)
			return NO_MEMORY;
		/* The client is gone; hang-up comes. What comes after that is thrown away; that something lay unread then is told once, in this way. */
		s->left_unread |= errno == ECONNRESET;
		return PUSHED;
	}
	s->last_was_data = header->type == INBOUND_DATA || header->type == INBOUND_ASK;
	return PUSHED;
}

/* How the descriptor is watched, by what the first of those that wait waits for. */
static void wait_for(struct sctp_socket *s, enum outcome outcome)
{
	uint32_t events = s->watch.events & ~(uint32_t)(EPOLLOUT | EPOLLET);

	if (outcome == FULL)
		events |= EPOLLOUT;
	else if (outcome == BEHIND_DATA)
		events |= EPOLLOUT | EPOLLET; /* at once, then whenever one was read, as long as there is little */
	s->wants_memory = outcome == NO_MEMORY;
	if (s->wants_memory)
		sockets_wait_for_time();
	loop_change(&s->watch, events);
}

static void append(struct sctp_socket *s, struct unsent *message)
{
	message->next = NULL;
	if (s->unsent == NULL)
		s->unsent = message;
	else
		s->last_unsent->next = message;
	s->last_unsent = message;
	s->unsent_length += sizeof(message->header) + message->length;
}

static void keep(struct sctp_socket *s, const struct inbound *header, const char *bytes, size_t length)
{
	struct unsent *message = malloc(sizeof(*message) + length);

	if (message == NULL) { /* better no more than one missing */
		if (socket_means(s)->receives)
			socket_enter(s, SOCKET_BROKEN);
		return;
	}
	message->length = length;
	message->header = *header;
	if (length > 0)
		memcpy(message->bytes, bytes, length);
	append(s, message);
}

static bool may_take(const struct sctp_socket *s)
{
	return s->unsent == NULL || (socket_is_connecting(s) && s->unsent_length < CONNECTING_MAX);
}

bool socket_push(struct sctp_socket *s, const struct inbound *header, const char *bytes, size_t length)
{
	bool first = s->unsent == NULL;
	enum outcome outcome = first ? push(s, header, bytes, length) : FULL;

	if (outcome == PUSHED)
		return true;
	if (first)
		wait_for(s, outcome);
	keep(s, header, bytes, length);
	return may_take(s);
}

static void forget_first(struct sctp_socket *s)
{
	struct unsent *first = s->unsent;

	s->unsent = first->next;
	s->unsent_length -= sizeof(first->header) + first->length;
	free(first);
}

static void push_all(struct sctp_socket *s)
{
	enum outcome outcome = PUSHED;

	while (s->unsent != NULL && outcome == PUSHED) {
		outcome = push(s, &s->unsent->header, s->unsent->bytes, s->unsent->length);
		if (outcome == PUSHED)
			forget_first(s);
	}
	wait_for(s, outcome);
}

bool socket_push_unsent(struct sctp_socket *s)
{
	if (s->unsent != NULL)
		push_all(s);
	return may_take(s);
}

/* The client's own end comes with each of its calls: what it hasn't read can be taken back from there, and sorted. `first` comes before it. */
static void sort_again(struct sctp_socket *from, int from_fd, struct sctp_socket *to, uint32_t association, struct unsent *first)
{
	static char taken[sizeof(struct inbound) + MESSAGE_MAX + OVERHEAD];
	struct unsent *kept = from->unsent, *next;
	struct inbound header;
	ssize_t got;

	from->unsent = NULL;
	from->unsent_length = 0;
	if (first != NULL)
		append(from, first);
	while ((got = recv(from_fd, taken, sizeof(taken), MSG_DONTWAIT)) >= (ssize_t)sizeof(header)) {
		memcpy(&header, taken, sizeof(header));
		keep(header.association == association ? to : from, &header, taken + sizeof(header), (size_t)got - sizeof(header));
	}
	for (; kept != NULL; kept = next) {
		next = kept->next;
		append(kept->header.association == association ? to : from, kept);
	}
	push_all(from);
}

void socket_move_inbound(struct sctp_socket *from, int from_fd, struct sctp_socket *to, uint32_t association)
{
	sort_again(from, from_fd, to, association, NULL);
	push_all(to);
}

int socket_take_back(struct sctp_socket *s, int client_fd, const char *bytes, size_t length)
{
	struct unsent *message, **link;

	if (length < sizeof(message->header) || length > sizeof(message->header) + MESSAGE_MAX)
		return EINVAL;
	length -= sizeof(message->header);
	message = malloc(sizeof(*message) + length);
	if (message == NULL)
		return ENOBUFS;
	*message = (struct unsent){ .length = length };
	memcpy(&message->header, bytes, sizeof(message->header));
	memcpy(message->bytes, bytes + sizeof(message->header), length);
	if (!s->end_told || !socket_means(s)->hangs_up) {
		sort_again(s, client_fd, s, 0, message);
		return 0;
	}
	if (message->header.type == INBOUND_OVER) { /* the state says so */
		free(message);
		return 0;
	}
	for (link = &s->returned; *link != NULL;)
		link = &(*link)->next;
	*link = message;
	return 0;
}

size_t socket_give_returned(struct sctp_socket *s, char *to, bool stays)
{
	struct unsent *message = s->returned;
	size_t length;

	if (message == NULL)
		return 0;
	length = sizeof(message->header) + message->length;
	memcpy(to, &message->header, sizeof(message->header));
	memcpy(to + sizeof(message->header), message->bytes, message->length);
	if (!stays) {
		s->returned = message->next;
		free(message);
	}
	return length;
}

bool socket_drop_unsent(struct sctp_socket *s)
{
	bool data = false;

	s->wants_memory = false;
	while (s->unsent != NULL) {
		data |= s->unsent->header.type == INBOUND_DATA;
		forget_first(s);
	}
	while (s->returned != NULL) {
		struct unsent *first = s->returned;

		s->returned = first->next;
		free(first);
	}
	return data;
}
