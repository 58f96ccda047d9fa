#include "lifecycle.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "closer.h"
#include "deliver.h"
#include "expiry.h"
#include "inbound.h"
#include "limits.h"
#include "options.h"
#include "outbound.h"
#include "packets.h"
#include "paths.h"
#include "shim.h"
#include "sockets.h"
#include "stack.h"
#include "translate.h"
#include "usrsctp_internal.h"

#define OWN_TURNS 4 /* packets to this host itself, and what they are answered with, before others are looked at */

/* Closing usrsctp's sockets as Linux closes its own: data that was never read ends the associations by ABORT; notifications don't matter, and what
 * was sent last still goes out.
 *
 * usrsctp aborts an association whose socket is closed when more data comes, and what was sent last is lost with it. A kernel throws away what comes
 * and ends in order. So the socket stays open here, without a client, until its associations are over. Meanwhile it is one of all sockets: its
 * addresses and its peers count. */

/* Read until there is data or nothing: usrsctp itself asks only whether anything is left. */
static bool data_unread(struct socket *so)
{
	char bytes[4096];
	struct sockaddr_in6 from;
	struct sctp_rcvinfo info;
	ssize_t length;
	int flags;

	usrsctp_set_non_blocking(so, 1);
	do {
		socklen_t from_length = sizeof(from), info_length = sizeof(info);
		unsigned int info_type = SCTP_RECVV_NOINFO;

		flags = 0;
		length = usrsctp_recvv(so, bytes, sizeof(bytes), (struct sockaddr *)&from, &from_length, &info, &info_length,
				       &info_type, &flags);
	} while (length > 0 && flags & MSG_NOTIFICATION);
	return length > 0;
}

static bool ends_by_abort(struct socket *so)
{
	struct linger linger = { 0 };
	socklen_t length = sizeof(linger);

	return usrsctp_getsockopt(so, SOL_SOCKET, SO_LINGER, &linger, &length) == 0 && linger.l_onoff && linger.l_linger == 0;
}

/* Whether associations are to end in order; one that has not begun is forgotten at once, unless something was sent. */
static bool has_to_wait(struct sctp_socket *s)
{
	const sctp_assoc_t *identifiers;
	uint32_t i, count = stack_association_list(s, &identifiers);
	struct lx_status status;
	struct buffer_use use;
	bool waits = false;

	for (i = 0; i < count; i++) {
		if (translate_status(s, identifiers[i], &status) != 0)
			continue;
		use = translate_buffer_use(s, identifiers[i]);
		if (use.receiving > 0) /* part of a message, whose rest didn't come: it was never read, either */
			return false; /* usrsctp itself does what is right for each */
		waits |= status.sstat_state >= LX_ESTABLISHED || use.sending > 0;
	}
	return waits;
}

/* Go on with the end of what close_stack_socket() left open; return whether it is over. */
static bool closing_has_ended(struct sctp_socket *s)
{
	const sctp_assoc_t *identifiers;
	uint32_t i, count = stack_association_list(s, &identifiers);
	struct lx_status status;

	for (i = 0; i < count; i++) {
		struct sctp_sndinfo end = { .snd_assoc_id = identifiers[i], .snd_flags = SCTP_EOF };

		if (translate_status(s, identifiers[i], &status) != 0 || status.sstat_state != LX_ESTABLISHED)
			continue;
		if (IS_ONE_TO_ONE(s))
			usrsctp_shutdown(s->so, SHUT_WR);
		else
			usrsctp_sendv(s->so, "", 0, NULL, 0, &end, sizeof(end), SCTP_SENDV_SNDINFO, 0);
	}
	return count == 0;
}

void close_stack_socket(const struct sctp_socket *s, struct socket *so, bool abort)
{
	const struct linger linger = { 1, 0 };
	struct sctp_socket of = { .so = so, .type = so == s->so ? s->type : SOCK_STREAM };

	abort |= data_unread(so);
	if (!abort && !ends_by_abort(so) && has_to_wait(&of)) {
		if (!IS_ONE_TO_ONE(&of))
			usrsctp_listen(so, 0);
		if (socket_create_closing(&of, s))
			return;
		abort = true; /* no memory */
	}
	if (abort)
		usrsctp_setsockopt(so, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	usrsctp_close(so);
}

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
		if (s->waiting_told > 0 || s->asking_told || s->rest_told) {
			s->telling_doubted = true;
			socket_look(s);
		}
}

/* Take what usrsctp has accepted, and tell the client how often it may ask. */
static void socket_accept_all(struct sctp_socket *s)
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

static void socket_drop_waiting(struct sctp_socket *s)
{
	while (s->waiting != NULL) {
		close_stack_socket(s, s->waiting->so, false);
		socket_forget_first_waiting(s);
	}
}

/* Another connect() on a one-to-one socket whose first one failed: usrsctp's sockets are good for one, Linux's for many. So the socket gets a
 * new one inside, bound as the old one was, with the options the program has set. */

#define KEPT_BYTES 4096 /* of one socket */

struct kept_option {
	struct kept_option *next;
	int level, option;
	size_t length;
	char value[];
};

static void forget(struct sctp_socket *s, struct kept_option **link)
{
	struct kept_option *kept = *link;

	*link = kept->next;
	s->kept_bytes -= sizeof(*kept) + kept->length;
	free(kept);
}

/* Make room: of this option the oldest value goes first, as several may count (one for each event, or address). */
static bool has_room(struct sctp_socket *s, int level, int option, size_t size)
{
	struct kept_option **link = &s->kept;

	while (s->kept_bytes + size > KEPT_BYTES && *link != NULL)
		if ((*link)->level == level && (*link)->option == option)
			forget(s, link);
		else
			link = &(*link)->next;
	return s->kept_bytes + size <= KEPT_BYTES;
}

void again_keep(struct sctp_socket *s, int level, int option, const char *value, size_t length)
{
	size_t size = sizeof(struct kept_option) + length;
	struct kept_option **link, *kept;

	if (!IS_ONE_TO_ONE(s) || socket_means(s)->had_connection || (level != IPPROTO_SCTP && level != SOL_SOCKET) ||
	    !has_room(s, level, option, size) || (kept = malloc(size)) == NULL)
		return;
	for (link = &s->kept; *link != NULL;)
		link = &(*link)->next;
	*kept = (struct kept_option){ NULL, level, option, length };
	memcpy(kept->value, value, length);
	*link = kept;
	s->kept_bytes += size;
}

static void again_forget(struct sctp_socket *s)
{
	while (s->kept != NULL)
		forget(s, &s->kept);
}

int again_prepare(struct sctp_socket *s)
{
	struct socket *fresh = usrsctp_socket(s->domain, s->type, IPPROTO_SCTP, NULL, NULL, 0, NULL);
	const struct kept_option *kept;
	int i;

	if (fresh == NULL)
		return errno;
	socket_replace(s, fresh);
	options_prepare(s);
	for (kept = s->kept; kept != NULL; kept = kept->next)
		options_set(s, kept->level, kept->option, kept->value, kept->length);
	for (i = 0; i < s->bound_count; i++) {
		struct sockaddr_in6 address = s->bound[i];

		address.sin6_port = htons(s->port);
		if (usrsctp_bindx(s->so, (struct sockaddr *)&address, 1, SCTP_BINDX_ADD_ADDR) < 0)
			return errno;
	}
	if (s->bound_count == 0)
		s->port = 0;
	socket_enter(s, SOCKET_OPEN);
	return 0;
}

/* Neither connected nor told that this failed: such a socket isn't writable. */
static bool is_unconnected(const struct sctp_socket *s)
{
	return IS_ONE_TO_ONE(s) && !socket_means(s)->had_connection && s->error == 0;
}

/* Give up the parts that only a socket with a client has. Return whether data lay here that the client never got. */
static bool leave_client(struct sctp_socket *s)
{
	again_forget(s);
	loop_remove(&s->watch);
	close_elsewhere(s->watch.fd);
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
	shim_end(s);
	socket_look(s); /* freed by the next run */
}

/* Take out what came, plugs or messages, if it may be; then watch for the next. */
static void unplug(struct sctp_socket *s)
{
	if (!socket_is_connecting(s) && !s->blocked && !is_unconnected(s))
		s->plugged = outbound_take(s);
	loop_change(&s->watch, s->plugged || s->sends_nothing ? s->watch.events & ~(uint32_t)EPOLLIN : s->watch.events | EPOLLIN);
}

void socket_plug(struct sctp_socket *s, int client_fd)
{
	static const char plug[PLUG_SIZE];

	if (s->plugged || !is_unconnected(s) || shim_has_plug(s) || send(client_fd, plug, sizeof(plug), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return;
	s->plugged = true;
	loop_change(&s->watch, s->watch.events & ~(uint32_t)EPOLLIN);
}

static void hung_up(struct sctp_socket *s)
{
	int error = 0;
	socklen_t length = sizeof(error);

	outbound_take_all(s);
	shim_hung_up(s);
	expiry_pass_all(s);
	while (s->unsent == NULL && socket_means(s)->receives && !socket_deliver(s)) /* what has come since then was never the program's */
		;
	/* So says the kernel, once, when inbound messages were never read; the end itself needn't be. */
	s->left_unread |= getsockopt(s->watch.fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == ECONNRESET;
	destroy(s, s->left_unread && s->last_was_data && (socket_means(s)->receives || socket_means(s)->discards));
}

void sockets_reap(uint16_t port, const struct sctp_socket *but)
{
	struct sctp_socket *s, *next;

	for (s = sockets_first(); s != NULL; s = next) {
		struct pollfd state = { s->watch.fd, 0, 0 };

		next = s->next;
		if (s != but && (port == 0 || s->port == port) && poll(&state, 1, 0) > 0 && state.revents & POLLHUP)
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
	const bool given = so != NULL, is_shim = type == SHIM_TYPE;
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
	type = is_shim ? SOCK_STREAM : type;
	if (so == NULL)
		so = usrsctp_socket(domain, type, IPPROTO_SCTP, NULL, NULL, 0, NULL);
	if (so == NULL || socketpair(AF_UNIX, (is_shim ? SOCK_STREAM : SOCK_SEQPACKET) | SOCK_CLOEXEC, 0, pair) < 0)
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
	snprintf(name, sizeof(name), is_shim ? SHIM_NAME_FORMAT : SOCKET_NAME_FORMAT, s->slot, unforeseen); /* any program may take names */
	if (bind(pair[0], (struct sockaddr *)&address, abstract_name(&address, name)) < 0 ||
	    getsockopt(pair[1], SOL_SOCKET, SO_COOKIE, &s->cookie, &length) < 0 || fstat(pair[1], &status) < 0)
		goto failed;
	s->inode = status.st_ino;
	s->watch = (struct watch){ pair[0], EPOLLIN, ready };
	s->so = so;
	s->domain = domain;
	s->type = type;
	s->owner = *owner;
	if (is_shim && !shim_begin(s, pair[1], given))
		goto failed;
	if (loop_add(&s->watch) < 0)
		goto failed;
	sockets_add(s);
	options_prepare(s);
	if (is_shim)
		outbound_note_room(s, given ? pair[1] : -1); /* the library sets that of a client's when it is connected */
	socket_tell_state(s); /* before the client has it: a recv() that finds nothing known would wait */
	*client_fd = pair[1];
	if (given)
		socket_doubt_paths(s);
	else
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
	if (s != NULL)
		free(s->shim);
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
		paths_look(s);
		shim_look(s);
		if (s->state == SOCKET_LISTENS && IS_ONE_TO_ONE(s)) {
			if (s->shim != NULL)
				shim_accept_all(s);
			else if (socket_push_unsent(s))
				socket_accept_all(s);
		} else if ((socket_push_unsent(s) || socket_means(s)->discards) && !socket_deliver(s)) {
			socket_look(s);
		}
		if (s->state == SOCKET_CLOSING && closing_has_ended(s)) {
			socket_went_on(s);
			destroy(s, false);
		}
		if (s->state != SOCKET_GONE && s->plugged)
			unplug(s);
		if (shim_is_over(s))
			destroy(s, shim_resets(s));
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
