/* The messages to the client through our end of its descriptor.
 *
 * At the end it must be known whether the program left data unread, but the kernel then tells only whether it left anything. So a notification
 * never lies behind unread data: it waits here until all data has been read. The descriptor then holds data exactly if the last
 * message that went in was. */
#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "inbound.h"
#include "limits.h"
#include "shim.h"
#include "sockets.h"

#define NOTHING 256           /* bytes, less than any message takes: whoever frees one leaves a byte of it for a moment */
#define BUFFER (512 * 1024)   /* bytes of what lies in a descriptor; the kernel doubles it */
#define OVERHEAD 1024         /* bytes: of a message's headers, and what the kernel keeps for itself */
#define RETURNED_PART 8
#define CONNECTING_MAX 1048576 /* bytes taken before there is room, since the outcome of a connect() may be behind them */

struct unsent {
	struct unsent *next;
	size_t length, pushed; /* bytes; only of a shim's the descriptor takes a part */
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

/* *pushed: the bytes of it that went before, and now. */
static enum outcome push(struct sctp_socket *s, const struct inbound *header, const char *bytes, size_t length, size_t *pushed)
{
	struct iovec vector[2] = { { (void *)(uintptr_t)header, sizeof(*header) }, { (void *)(uintptr_t)(length > 0 ? bytes + *pushed : bytes), length - *pushed } };
	struct msghdr message = { .msg_iov = s->shim != NULL ? vector + 1 : vector, .msg_iovlen = s->shim != NULL ? 1 : 2 };
	ssize_t sent;

	if (s->shim != NULL && header->type != INBOUND_DATA) { /* bytes, and their end, are all that a TCP connection has */
		if (header->type == INBOUND_OVER)
			shim_end_receiving(s);
		return PUSHED;
	}
	if (header->type == INBOUND_NOTIFICATION && s->last_was_data && !inbound_all_read(s))
		return BEHIND_DATA;
	sent = sendmsg(s->watch.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (sent < 0) {
		if (errno == EAGAIN)
			return FULL;
		if (errno != EPIPE && errno != ECONNRESET && errno != ENOTCONN)
			return NO_MEMORY;
		/* The client is gone; hang-up comes. A message that comes after that is thrown away; that something lay unread then is told once, in this way. */
		s->left_unread |= errno == ECONNRESET;
		return PUSHED;
	}
	s->last_was_data = header->type == INBOUND_DATA || header->type == INBOUND_ASK; /* little is read of a notification */
	*pushed += (size_t)sent;
	return s->shim != NULL && *pushed < length ? FULL : PUSHED;
}

/* How the descriptor is watched, by what the first of those that wait waits for. */
static void wait_for(struct sctp_socket *s, enum outcome outcome)
{
	uint32_t events = s->watch.events & ~(uint32_t)(EPOLLOUT | (s->shim != NULL ? 0 : EPOLLET));

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
	message->pushed = 0;
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
	size_t pushed = 0;
	enum outcome outcome = first ? push(s, header, bytes, length, &pushed) : FULL;

	if (outcome == PUSHED)
		return true;
	if (first)
		wait_for(s, outcome);
	keep(s, header, length > 0 ? bytes + pushed : bytes, length - pushed);
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
		outcome = push(s, &s->unsent->header, s->unsent->bytes, s->unsent->length, &s->unsent->pushed);
		if (outcome == PUSHED)
			forget_first(s);
	}
	wait_for(s, outcome);
}

static void watch_reading(struct sctp_socket *s, bool watches)
{
	const uint32_t reading = EPOLLOUT | EPOLLET; /* at once, then whenever one was read, as long as there is little */

	if (s->unsent == NULL) /* else wait_for() has said what is waited for */
		loop_change(&s->watch, watches ? s->watch.events | reading : s->watch.events & ~reading);
}

/* poll() looks at the descriptor only: where nothing else lies there, something must tell of what was given back. */
static void tell_rest(struct sctp_socket *s)
{
	static const struct inbound told = { .type = INBOUND_ASK, .flags = INBOUND_REST };

	if (s->telling_doubted && s->rest_told && inbound_all_read(s))
		s->telling_doubted = s->rest_told = s->asking_told = false;
	if (s->returned == NULL || s->rest_told || s->unsent != NULL || (s->end_told && socket_means(s)->hangs_up))
		return;
	s->rest_told = inbound_all_read(s) && push(s, &told, NULL, 0, &(size_t){ 0 }) == PUSHED;
	watch_reading(s, !s->rest_told);
}

bool socket_push_unsent(struct sctp_socket *s)
{
	if (s->unsent != NULL)
		push_all(s);
	tell_rest(s);
	return may_take(s);
}

/* The client's own end comes with each of its calls: what it hasn't read can be taken back from there, and sorted. */
void socket_move_inbound(struct sctp_socket *from, int from_fd, struct sctp_socket *to, uint32_t association)
{
	static char taken[sizeof(struct inbound) + MESSAGE_MAX + OVERHEAD];
	struct unsent *kept = from->unsent, *next, **link = &from->returned, **end = &to->returned;
	struct inbound header;
	ssize_t got;

	while (*link != NULL) {
		if ((*link)->header.association != association) {
			link = &(*link)->next;
			continue;
		}
		*end = *link;
		*link = (*link)->next;
		end = &(*end)->next;
		*end = NULL;
	}

	from->unsent = NULL;
	from->unsent_length = 0;
	while ((got = recv(from_fd, taken, sizeof(taken), MSG_DONTWAIT)) >= (ssize_t)sizeof(header)) {
		memcpy(&header, taken, sizeof(header));
		keep(header.association == association ? to : from, &header, taken + sizeof(header), (size_t)got - sizeof(header));
	}
	for (; kept != NULL; kept = next) {
		next = kept->next;
		append(kept->header.association == association ? to : from, kept);
	}
	from->rest_told = from->asking_told = false;
	push_all(from);
	push_all(to);
	tell_rest(from);
	tell_rest(to);
}

static size_t all_returned; /* bytes, of all sockets */

static void forget_returned(struct sctp_socket *s)
{
	struct unsent *first = s->returned;

	s->returned = first->next;
	all_returned -= sizeof(*first) + first->length;
	free(first);
}

/* A reader took what tells of something and is not for it. */
static void tell_again(struct sctp_socket *s, const struct inbound *told)
{
	if (told->type == INBOUND_ACCEPT && s->waiting_told > 0)
		s->waiting_told--;
	else if (told->type == INBOUND_ASK && told->flags & INBOUND_REST)
		s->rest_told = false;
	else if (told->type == INBOUND_ASK)
		s->asking_told = false;
	else if (told->type == INBOUND_OVER && s->unsent == NULL && !(s->end_told && socket_means(s)->hangs_up)) /* else the state says so */
		push(s, told, NULL, 0, &(size_t){ 0 });
	socket_look(s);
}

int socket_take_back(struct sctp_socket *s, const char *bytes, size_t length)
{
	struct unsent *message;
	struct inbound header;

	if (length < sizeof(message->header) || length > sizeof(message->header) + MESSAGE_MAX)
		return EINVAL;
	memcpy(&header, bytes, sizeof(header));
	if (header.type != INBOUND_DATA && header.type != INBOUND_NOTIFICATION) {
		tell_again(s, &header);
		return 0;
	}
	length -= sizeof(message->header);
	/* Once the memory is used up, readers get back no more than a part of it. */
	message = limits_reached() && all_returned + length > limits.memory / RETURNED_PART ? NULL : malloc(sizeof(*message) + length);
	if (message == NULL) { /* better no more than a part missing */
		if (socket_means(s)->receives)
			socket_enter(s, SOCKET_BROKEN);
		return ENOBUFS;
	}
	limits_note(length);
	*message = (struct unsent){ .length = length };
	memcpy(&message->header, bytes, sizeof(message->header));
	memcpy(message->bytes, bytes + sizeof(message->header), length);
	message->next = s->returned;
	s->returned = message;
	all_returned += sizeof(*message) + length;
	tell_rest(s);
	return 0;
}

/* Take away what told of it: it lies first, unless a reader has it. */
static void untell_rest(struct sctp_socket *s, int client_fd)
{
	static char taken[sizeof(struct inbound) + MESSAGE_MAX];
	struct inbound header = { 0 };
	ssize_t got;

	if (s->rest_told && recv(client_fd, &header, sizeof(header), MSG_PEEK | MSG_DONTWAIT) == sizeof(header) && header.type == INBOUND_ASK &&
	    header.flags & INBOUND_REST) {
		got = recv(client_fd, taken, sizeof(taken), MSG_DONTWAIT);
		if (got > (ssize_t)sizeof(header)) /* a reader was quicker: this was behind it */
			socket_take_back(s, taken, (size_t)got);
	}
	s->rest_told = false;
}

size_t socket_give_returned(struct sctp_socket *s, int client_fd, char *to, bool stays)
{
	struct unsent *message = s->returned;
	size_t length;

	if (message == NULL)
		return 0;
	length = sizeof(message->header) + message->length;
	memcpy(to, &message->header, sizeof(message->header));
	memcpy(to + sizeof(message->header), message->bytes, message->length);
	if (stays)
		return length;
	forget_returned(s);
	untell_rest(s, client_fd);
	watch_reading(s, false);
	tell_rest(s);
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
		data |= s->returned->header.type == INBOUND_DATA;
		forget_returned(s);
	}
	return data;
}
