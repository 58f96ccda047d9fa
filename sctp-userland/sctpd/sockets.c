#include "sockets.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "accept.h"
#include "again.h"
#include "close.h"
#include "deliver.h"
#include "expiry.h"
#include "inbound.h"
#include "limits.h"
#include "options.h"
#include "outbound.h"
#include "stack.h"
#include "states.h"
#include "usrsctp_internal.h"

#define BUCKETS 1024 /* power of two */

static struct sctp_socket *first, *dirty_list;
static struct sctp_socket *by_stack[BUCKETS], *by_cookie[BUCKETS];
static int count;

static unsigned int stack_bucket(const struct socket *so)
{
	return (unsigned int)(((uintptr_t)so >> 5) & (BUCKETS - 1));
}

static struct sctp_socket *find_stack(const struct socket *so)
{
	struct sctp_socket *s = by_stack[stack_bucket(so)];

	while (s != NULL && s->so != so)
		s = s->next_in_stack;
	return s;
}

void socket_look(struct sctp_socket *s)
{
	if (s->dirty)
		return;
	s->dirty = true;
	s->next_dirty = dirty_list;
	dirty_list = s;
}

void socket_wakeup(struct socket *so)
{
	struct sctp_socket *s = find_stack(so);

	if (s != NULL) {
		s->blocked = false;
		socket_look(s);
	}
}

static void no_upcall(struct socket *so, void *argument, int flags)
{
	(void)so, (void)argument, (void)flags; /* it must be set for wake-ups to happen */
}

static void enter_stack(struct sctp_socket *s)
{
	struct sctp_socket **bucket = &by_stack[stack_bucket(s->so)];

	s->next_in_stack = *bucket;
	*bucket = s;
	usrsctp_set_non_blocking(s->so, 1);
	usrsctp_set_upcall(s->so, no_upcall, NULL);
}

static void leave_stack(struct sctp_socket *s)
{
	struct sctp_socket **link = &by_stack[stack_bucket(s->so)];

	while (*link != s)
		link = &(*link)->next_in_stack;
	*link = s->next_in_stack;
}

#define BIT(state) (1U << SOCKET_##state)
#define LEFT (BIT(CLOSING) | BIT(GONE))

static const struct socket_state_means states_mean[] = {
	[SOCKET_OPEN] = { "open", .receives = true, .next = BIT(LISTENS) | BIT(CONNECTING) | BIT(CONNECTED) | BIT(BROKEN) | LEFT },
	[SOCKET_LISTENS] = { "listening", .receives = true, .told = STATE_LISTENS, .next = BIT(OPEN) | BIT(BROKEN) | LEFT },
	[SOCKET_CONNECTING] = { "connecting", .receives = true, .told = STATE_RECEIVES,
				.next = BIT(CONNECTED) | BIT(FAILED) | BIT(BROKEN) | LEFT },
	[SOCKET_FAILED] = { "open", .receives = true, .next = BIT(OPEN) | BIT(LISTENS) | BIT(CONNECTED) | BIT(BROKEN) | LEFT },
	[SOCKET_CONNECTED] = { "connected", true, .receives = true, .told = STATE_RECEIVES,
			       .next = BIT(READ_SHUT) | BIT(ENDED) | BIT(FINISHED) | BIT(BROKEN) | LEFT },
	[SOCKET_READ_SHUT] = { "connected", true, .discards = true, .hangs_up = true, .told = STATE_RECEIVES | STATE_TAKES_NO_MORE,
			       .next = BIT(READ_SHUT) | LEFT },
	[SOCKET_ENDED] = { "ended", true, .hangs_up = true, .told = STATE_RECEIVES | STATE_TAKES_NO_MORE, .next = BIT(READ_SHUT) | LEFT },
	[SOCKET_FINISHED] = { "ended", true, .told = STATE_RECEIVES | STATE_OVER | STATE_TAKES_NO_MORE, .next = BIT(READ_SHUT) | LEFT },
	[SOCKET_BROKEN] = { "ended", true, .hangs_up = true, .told = STATE_RECEIVES | STATE_OVER | STATE_TAKES_NO_MORE,
			    .next = BIT(BROKEN) | BIT(READ_SHUT) | LEFT },
	[SOCKET_CLOSING] = { "closing", .discards = true, .next = BIT(GONE) },
	[SOCKET_GONE] = { "gone" },
};

const struct socket_state_means *socket_means(const struct sctp_socket *s)
{
	return &states_mean[s->state];
}

void socket_enter(struct sctp_socket *s, enum socket_state state)
{
	if (!(socket_means(s)->next & 1U << state)) {
		log_line("a fault of its own: a socket that is %s may not be %s", socket_means(s)->name, states_mean[state].name);
#ifdef __SANITIZE_ADDRESS__
		abort();
#endif
	}
	s->state = state;
	socket_tell_state(s);
}

/* Neither connected nor told that this failed: such a socket isn't writable. */
static bool is_unconnected(const struct sctp_socket *s)
{
	return IS_ONE_TO_ONE(s) && !socket_means(s)->had_connection && s->error == 0;
}

static void enter(struct sctp_socket *s)
{
	enter_stack(s);
	s->next = first;
	if (first != NULL)
		first->previous = &s->next;
	s->previous = &first;
	first = s;
	socket_look(s);
}

bool socket_create_closing(const struct sctp_socket *of, const struct sctp_socket *s)
{
	struct sctp_socket *closing = calloc(1, sizeof(*closing));

	if (closing == NULL)
		return false;
	*closing = (struct sctp_socket){ .watch.fd = -1, .so = of->so, .type = of->type, .domain = s->domain, .owner = s->owner, .port = s->port,
					 .bound_count = s->bound_count, .bound_any = s->bound_any, .v6only = s->v6only,
					 .state = SOCKET_CLOSING, .place = STATES_MAX };
	memcpy(closing->bound, s->bound, sizeof(closing->bound));
	enter(closing);
	return true;
}

/* What only a socket with a client has. Return whether data lay here that the client never got. */
static bool leave_client(struct sctp_socket *s)
{
	struct sctp_socket **link;

	again_forget(s);
	for (link = &by_cookie[s->cookie & (BUCKETS - 1)]; *link != s;)
		link = &(*link)->next_cookie;
	*link = s->next_cookie;
	count--;
	loop_remove(&s->watch);
	close(s->watch.fd);
	socket_drop_waiting(s);
	expiry_drop(s);
	return socket_drop_unsent(s);
}

/* Close: with ABORT, or when data lies here that the client never got; else gracefully. */
static void destroy(struct sctp_socket *s, bool abort)
{
	const bool has_client = s->state != SOCKET_CLOSING;

	if (s->state == SOCKET_GONE)
		return;
	socket_enter(s, SOCKET_GONE);
	leave_stack(s);
	abort |= has_client && leave_client(s);
	close_stack_socket(s, s->so, abort); /* the last packets' source addresses are chosen by the list of sockets */
	*s->previous = s->next;
	if (s->next != NULL)
		s->next->previous = s->previous;
	s->so = NULL;
	states_give_back(s->place);
	socket_look(s); /* freed by the next run */
}

/* Take out what came, plugs or messages, if it may be; then watch for the next. */
static void unplug(struct sctp_socket *s)
{
	if (!socket_is_connecting(s) && !s->blocked && !is_unconnected(s))
		s->plugged = outbound_take(s);
	loop_change(&s->watch, s->plugged ? s->watch.events & ~(uint32_t)EPOLLIN : s->watch.events | EPOLLIN);
}

void socket_plug(struct sctp_socket *s, int client_fd)
{
	static const char plug[PLUG_SIZE];

	if (s->plugged || !is_unconnected(s) || send(client_fd, plug, sizeof(plug), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return;
	s->plugged = true;
	loop_change(&s->watch, s->watch.events & ~(uint32_t)EPOLLIN);
}

static void hung_up(struct sctp_socket *s)
{
	int error = 0;
	socklen_t length = sizeof(error);

	outbound_take_all(s);
	expiry_pass_all(s);
	while (s->unsent == NULL && socket_means(s)->receives && !socket_deliver(s)) /* what has come since then was never the program's */
		;
	/* So says the kernel, once, when inbound messages were never read; the end itself needn't be. */
	s->left_unread |= getsockopt(s->watch.fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == ECONNRESET;
	destroy(s, s->left_unread && s->last_was_data && (socket_means(s)->receives || socket_means(s)->discards));
}

void sockets_reap(uint16_t port)
{
	struct sctp_socket *s, *next;

	for (s = first; s != NULL; s = next) {
		struct pollfd state = { s->watch.fd, 0, 0 };

		next = s->next;
		if (!s->served && (port == 0 || s->port == port) && poll(&state, 1, 0) > 0 && state.revents & POLLHUP)
			hung_up(s);
	}
}

static void ready(struct watch *watch, uint32_t events)
{
	struct sctp_socket *s = (struct sctp_socket *)watch;

	if (events & EPOLLHUP) {
		hung_up(s);
		return;
	}
	s->plugged |= (events & EPOLLIN) != 0;
	socket_look(s);
}

static bool has_associations(struct sctp_socket *s)
{
	uint32_t number = 0;
	socklen_t length = sizeof(number);

	return usrsctp_getsockopt(s->so, IPPROTO_SCTP, SCTP_GET_ASSOC_NUMBER, &number, &length) < 0 || number > 0;
}

void socket_tell_state(struct sctp_socket *s)
{
	uint32_t state = STATE_KNOWN | (s->returned != NULL ? STATE_RETURNED : 0);

	if (s->state == SOCKET_GONE)
		return;
	if (IS_ONE_TO_ONE(s))
		state |= socket_means(s)->told & ~(uint32_t)(s->end_told ? 0 : STATE_OVER);
	if (IS_ONE_TO_ONE(s) ? s->error != 0 : s->state == SOCKET_LISTENS || has_associations(s))
		state |= STATE_RECEIVES;
	state |= (s->events[0] ? STATE_WANTS_SNDRCV : 0) | (s->wants_rcvinfo ? STATE_WANTS_RCVINFO : 0) |
		 (s->wants_nxtinfo ? STATE_WANTS_NXTINFO : 0);
	if (state & STATE_TAKES_NO_MORE || s->shut_down || s->ends || s->error != 0 || s->so->error != 0 || s->lost != 0)
		state |= STATE_TAKES_NO_MORE;
	else if (!s->blocked)
		state |= (uint32_t)s->streams << STATE_STREAMS_SHIFT;
	states_tell(s->place, state);
}

void socket_replace(struct sctp_socket *s, struct socket *fresh)
{
	leave_stack(s);
	usrsctp_close(s->so);
	s->so = fresh;
	enter_stack(s);
}

struct sctp_socket *socket_create(int domain, int type, struct socket *so, const struct ucred *owner, int *client_fd)
{
	struct sctp_socket *s = calloc(1, sizeof(*s)), **bucket;
	unsigned long long unforeseen;
	bool given = so != NULL;
	socklen_t length = sizeof(s->cookie);
	int pair[2] = { -1, -1 }, size = CLIENT_SEND_BUFFER;
	char name[64] = "";
	struct sockaddr_un address;
	struct stat status;

	if (s == NULL)
		goto failed;
	errno = EMFILE;
	if (limits_refuse(LIMIT_SOCKETS, count >= limits.sockets))
		goto failed;
	if (so == NULL)
		so = usrsctp_socket(domain, type, IPPROTO_SCTP, NULL, NULL, 0, NULL);
	if (so == NULL || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		goto failed;
	errno = EMFILE;
	if (limits_refuse(LIMIT_DESCRIPTORS, !loop_keeps_descriptors(pair[1])))
		goto failed;
	setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	if (!inbound_prepare(pair[0]))
		goto failed;
	if (getrandom(&unforeseen, sizeof(unforeseen), 0) < 0)
		goto failed;
	s->place = states_take();
	errno = EMFILE;
	if (s->place == STATES_MAX)
		goto failed;
	snprintf(name, sizeof(name), SOCKET_NAME_FORMAT, s->place, unforeseen); /* any program may take names */
	if (bind(pair[0], (struct sockaddr *)&address, abstract_name(&address, name)) < 0 ||
	    getsockopt(pair[1], SOL_SOCKET, SO_COOKIE, &s->cookie, &length) < 0 || fstat(pair[1], &status) < 0)
		goto failed;
	s->inode = status.st_ino;
	s->watch = (struct watch){ pair[0], EPOLLIN, ready };
	s->so = so;
	s->domain = domain;
	s->type = type;
	s->owner = *owner;
	if (loop_add(&s->watch) < 0)
		goto failed;
	enter(s);
	options_prepare(s);
	bucket = &by_cookie[s->cookie & (BUCKETS - 1)];
	s->next_cookie = *bucket;
	*bucket = s;
	count++;
	*client_fd = pair[1];
	if (!given)
		socket_plug(s, pair[1]);
	return s;
failed:
	size = errno;
	if (s != NULL && name[0] != '\0')
		states_give_back(s->place);
	if (so != NULL && !given)
		usrsctp_close(so);
	if (pair[0] >= 0)
		close(pair[0]), close(pair[1]);
	free(s);
	errno = size;
	return NULL;
}

struct sctp_socket *socket_of(int client_fd)
{
	uint64_t cookie;
	socklen_t length = sizeof(cookie);
	struct sctp_socket *s;
	struct stat status;

	if (getsockopt(client_fd, SOL_SOCKET, SO_COOKIE, &cookie, &length) < 0 || fstat(client_fd, &status) < 0)
		return NULL;
	for (s = by_cookie[cookie & (BUCKETS - 1)]; s != NULL && (s->cookie != cookie || s->inode != status.st_ino);)
		s = s->next_cookie;
	return s;
}

void sockets_run(void)
{
	struct sctp_socket *s, *list;

	for (list = dirty_list, dirty_list = NULL; list != NULL;) {
		s = list;
		list = s->next_dirty;
		s->dirty = false;
		if (s->state == SOCKET_GONE) {
			free(s);
			continue;
		}
		socket_note_error(s);
		expiry_look(s);
		if (s->state == SOCKET_LISTENS && IS_ONE_TO_ONE(s)) {
			if (socket_push_unsent(s))
				socket_accept_all(s);
		} else if ((socket_push_unsent(s) || socket_means(s)->discards) && !socket_deliver(s)) {
			socket_look(s);
		}
		if (s->state == SOCKET_CLOSING && closing_has_ended(s))
			destroy(s, false);
		if (s->state != SOCKET_GONE && s->plugged)
			unplug(s);
		s->ends = s->ends && s->state != SOCKET_GONE && outbound_is_over(s); /* the SHUTDOWN may have been forged */
		socket_tell_state(s);
	}
}

void sockets_unblock_all(void)
{
	struct sctp_socket *s;

	for (s = first; s != NULL; s = s->next)
		if (s->blocked || s->state == SOCKET_CLOSING) {
			s->blocked = false;
			socket_look(s);
		}
}

bool sockets_pending(void)
{
	return dirty_list != NULL;
}

int sockets_count(void)
{
	return count;
}

struct sctp_socket *sockets_first(void)
{
	return first;
}

void sockets_end_all(void)
{
	while (first != NULL)
		destroy(first, true);
}
