#include "lifecycle.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
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
#include "packets.h"
#include "states.h"

#define OWN_TURNS 4 /* packets to this host itself, and what they are answered with, before others are looked at */

/* Neither connected nor told that this failed: such a socket isn't writable. */
static bool is_unconnected(const struct sctp_socket *s)
{
	return IS_ONE_TO_ONE(s) && !socket_means(s)->had_connection && s->error == 0;
}

/* What only a socket with a client has. Return whether data lay here that the client never got. */
static bool leave_client(struct sctp_socket *s)
{
	again_forget(s);
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
	socket_leave_stack(s);
	abort |= has_client && leave_client(s);
	close_stack_socket(s, s->so, abort); /* the last packets' source addresses are chosen by the list of sockets */
	sockets_remove(s);
	s->so = NULL;
	states_give_back(s->slot);
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

	for (s = sockets_first(); s != NULL; s = next) {
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

struct sctp_socket *socket_create(int domain, int type, struct socket *so, const struct ucred *owner, int *client_fd)
{
	struct sctp_socket *s = calloc(1, sizeof(*s));
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
	if (limits_refuse(LIMIT_SOCKETS, sockets_count() >= limits.sockets))
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
	s->slot = states_take();
	errno = EMFILE;
	if (s->slot == STATES_MAX)
		goto failed;
	snprintf(name, sizeof(name), SOCKET_NAME_FORMAT, s->slot, unforeseen); /* any program may take names */
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
	sockets_add(s);
	options_prepare(s);
	socket_tell_state(s); /* before the client has it: a recv() that finds nothing known would wait */
	*client_fd = pair[1];
	if (!given)
		socket_plug(s, pair[1]);
	return s;
failed:
	size = errno;
	if (s != NULL && name[0] != '\0')
		states_give_back(s->slot);
	if (so != NULL && !given)
		usrsctp_close(so);
	if (pair[0] >= 0)
		close(pair[0]), close(pair[1]);
	free(s);
	errno = size;
	return NULL;
}

void sockets_run(void)
{
	struct sctp_socket *s, *list;

	for (list = sockets_take_pending(); list != NULL;) {
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

void sockets_turn(bool waits)
{
	int turn;

	sockets_run();
	for (turn = 0; turn < OWN_TURNS && packets_take_own(waits); turn++)
		sockets_run();
}

void sockets_end_all(void)
{
	while (sockets_first() != NULL)
		destroy(sockets_first(), true);
}
