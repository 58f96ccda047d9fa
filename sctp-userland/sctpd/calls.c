#include "calls.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "bound.h"
#include "deliver.h"
#include "expiry.h"
#include "inbound.h"
#include "lifecycle.h"
#include "options.h"
#include "outbound.h"
#include "packets.h"
#include "sockets.h"
#include "status.h"

#define BACKLOG_MAX 4096 /* a kernel's net.core.somaxconn */

static int open_socket(struct call *call)
{
	int domain = call->request->argument[0], type = call->request->argument[1];
	struct sctp_socket *s;

	if (domain != AF_INET && domain != AF_INET6)
		return EAFNOSUPPORT;
	if (type != SOCK_STREAM && type != SOCK_SEQPACKET && type != SHIM_TYPE)
		return ESOCKTNOSUPPORT;
	s = socket_create(domain, type, NULL, call->caller, &call->descriptor);
	return s == NULL ? errno : 0;
}

/* The kernel's options that a new descriptor takes over from the one it came from. */
static void inherit_native(int from, int to)
{
	static const int options[] = { SO_REUSEADDR, SO_KEEPALIVE, SO_RCVTIMEO, SO_SNDTIMEO };
	size_t i;

	for (i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		struct timeval value = { 0 }; /* the largest of them */
		socklen_t length = sizeof(value);

		if (getsockopt(from, SOL_SOCKET, options[i], &value, &length) == 0)
			setsockopt(to, SOL_SOCKET, options[i], &value, length);
	}
}

void call_inherit(struct sctp_socket *to, const struct sctp_socket *from)
{
	to->made = BY_ACCEPT;
	memcpy(to->events, from->events, sizeof(to->events));
	memcpy(to->bound, from->bound, sizeof(to->bound));
	to->bound_count = from->bound_count;
	to->port = from->port;
	to->wants_rcvinfo = from->wants_rcvinfo;
	to->wants_nxtinfo = from->wants_nxtinfo;
	to->v6only = from->v6only;
	to->near = from->near;
	to->calls_only = from->calls_only;
	to->has_lifetime = from->has_lifetime;
	to->send_buffer = from->send_buffer;
	to->receive_buffer = from->receive_buffer;
	to->waits_for_asking = from->waits_for_asking;
	socket_enter(to, SOCKET_CONNECTED);
	socket_note_peer(to);
	options_prepare(to);
}

static void inherit(const struct call *call, struct sctp_socket *to, const struct sctp_socket *from)
{
	to->reuses = call_reuses_addresses(call);
	inherit_native(call->passed, call->descriptor);
	call_inherit(to, from);
}

/* A connection that can't be had now goes on waiting, and is told of again. */
static int accept_waiting(struct call *call, struct sctp_socket *s)
{
	struct waiting *waiting = s->waiting;
	struct sctp_socket *accepted;

	if (s->waiting_told > 0)
		s->waiting_told--;
	if (waiting == NULL)
		return ECONNABORTED;
	accepted = socket_create(s->domain, SOCK_STREAM, waiting->so, call->caller, &call->descriptor);
	if (accepted == NULL)
		return errno;
	waiting->peer_length = address_map(&waiting->peer, s->domain);
	memcpy(call->result, &waiting->peer, waiting->peer_length);
	call->reply.address_length = waiting->peer_length;
	socket_forget_first_waiting(s);
	inherit(call, accepted, s);
	return 0;
}

static int peel_off(struct call *call, struct sctp_socket *s)
{
	struct socket *so;
	struct sctp_socket *peeled;

	if (IS_ONE_TO_ONE(s))
		return EINVAL;
	expiry_pass_all(s);
	so = usrsctp_peeloff(s->so, (sctp_assoc_t)call->request->argument[0]);
	if (so == NULL)
		return errno == ENOENT || errno == ENOTCONN ? EINVAL : errno;
	peeled = socket_create(s->domain, SOCK_STREAM, so, call->caller, &call->descriptor);
	if (peeled == NULL) {
		int error = errno;

		close_stack_socket(s, so, false); /* as Linux does */
		return error;
	}
	outbound_change_way(s);
	inherit(call, peeled, s);
	peeled->made = BY_PEELING;
	socket_move_inbound(s, call->passed, peeled, (uint32_t)call->request->argument[0]);
	return 0;
}

int call_listen(struct call *call, struct sctp_socket *s)
{
	int backlog = call->request->argument[0];

	if (backlog < 0 || backlog > BACKLOG_MAX) /* a kernel takes what is negative for a lot */
		backlog = BACKLOG_MAX;
	if (s->state == SOCKET_CONNECTING || (IS_ONE_TO_ONE(s) && socket_means(s)->had_connection) ||
	    (backlog == 0 && (s->state != SOCKET_LISTENS || s->backlog == 0)))
		return EINVAL;
	if (usrsctp_listen(s->so, IS_ONE_TO_ONE(s) || backlog == 0 ? backlog : 1) < 0)
		return errno;
	if ((backlog > 0 || IS_ONE_TO_ONE(s)) != (s->state == SOCKET_LISTENS))
		socket_enter(s, s->state == SOCKET_LISTENS ? SOCKET_OPEN : SOCKET_LISTENS);
	s->backlog = backlog;
	if (IS_ONE_TO_ONE(s))
		socket_limit_waiting(s);
	socket_note_port(s);
	socket_look(s);
	return 0;
}

static int shut_down(struct call *call, struct sctp_socket *s)
{
	int how = call->request->argument[0];

	if (how < SHUT_RD || how > SHUT_RDWR)
		return EINVAL;
	if (s->state == SOCKET_LISTENS) /* as Linux, which does nothing then */
		return how == SHUT_WR ? 0 : EOPNOTSUPP;
	if (!socket_means(s)->had_connection || !IS_ONE_TO_ONE(s))
		return ENOTCONN;
	if (how != SHUT_WR)
		socket_receives_no_more(s);
	if (how == SHUT_RD)
		return 0; /* the peer isn't told, as in Linux */
	expiry_pass_all(s);
	if (s->state == SOCKET_CONNECTED)
		socket_enter(s, SOCKET_WRITE_SHUT);
	return usrsctp_shutdown(s->so, SHUT_WR) < 0 && errno != ENOTCONN ? errno : 0;
}

static int option_set(struct call *call, struct sctp_socket *s)
{
	const struct request *request = call->request;
	int error = options_set(s, request->argument[0], request->argument[1], call->data, request->data_length);

	if (error == 0 && request->argument[0] == SOL_SOCKET && request->argument[1] == SO_SNDBUF)
		outbound_note_room(s, call->passed);
	if (error == 0)
		again_keep(s, request->argument[0], request->argument[1], call->data, request->data_length);
	return error;
}

static int option_get(struct call *call, struct sctp_socket *s)
{
	const struct request *request = call->request;
	size_t length = request->argument[2] < 0 || request->argument[2] > OPTION_MAX ? OPTION_MAX
										       : (size_t)request->argument[2];
	char *value = call->result;
	const bool stays = request->argument[3] != 0;
	int error, pending = IS_ONE_TO_ONE(s) == stays ? s->error : 0;

	if (request->argument[0] == IPPROTO_SCTP)
		packets_take_waiting(); /* they came first */
	memset(value, 0, OPTION_MAX);
	memcpy(value, call->data, request->data_length < length ? request->data_length : length);
	if (!IS_ONE_TO_ONE(s) && !stays)
		s->error = 0; /* as in Linux only connect() tells it, which may be waiting for it now, and a notification */
	error = options_get(s, request->argument[0], request->argument[1], value, &length);
	if (pending != 0)
		s->error = pending; /* as Linux does, of one-to-one sockets: connect() tells it, and the next call that asks */
	call->reply.data_length = error == 0 ? (uint32_t)length : 0;
	return error;
}

/* The states that clients may know without asking, see sockets.h. */
static int states(struct call *call)
{
	call->descriptor = fcntl(states_memory(), F_DUPFD_CLOEXEC, 0);
	return call->descriptor < 0 ? errno : 0;
}

static int status(struct call *call)
{
	call->descriptor = status_file(call->request->argument[0] != 0);
	return call->descriptor < 0 ? -call->descriptor : 0;
}

static int run(struct call *call, struct sctp_socket *s)
{
	const struct request *request = call->request;
	int error;

	switch (request->operation) {
	case OP_SOCKET:
		return open_socket(call);
	case OP_STATES:
		return states(call);
	case OP_STATUS:
		return status(call);
	case OP_SHIM_LISTEN:
		return call_shim_listen(call);
	case OP_SHIM_ACCEPT:
		return call_shim_accept(call);
	case OP_SHIM_VERDICT:
		return call_shim_verdict(call);
	default:
		break;
	}
	if (s == NULL)
		return EBADF;
	if (s->shim != NULL && !call_shim_may(request->operation))
		return EOPNOTSUPP;
	switch (request->operation) {
	case OP_BIND:
		return call_bind(call, s);
	case OP_BINDX:
		return call_bindx(call, s);
	case OP_LISTEN:
		return call_listen(call, s);
	case OP_ACCEPT:
		return accept_waiting(call, s);
	case OP_CONNECT:
		return call_connect(call, s);
	case OP_SHIM_CONNECT:
		return call_shim_connect(call, s);
	case OP_SEND:
		return call_send(call, s);
	case OP_SENT:
		error = s->lost;
		s->lost = 0;
		return error == 0 ? 0 : EPIPE;
	case OP_SHUTDOWN:
		return shut_down(call, s);
	case OP_SETSOCKOPT:
		if (request->data_length > OPTION_MAX)
			return EINVAL;
		return option_set(call, s);
	case OP_GETSOCKOPT:
		return option_get(call, s);
	case OP_GETSOCKNAME:
	case OP_GETPEERNAME:
		return call_names(call, s);
	case OP_PEELOFF:
		return peel_off(call, s);
	case OP_GIVE_BACK:
		return socket_take_back(s, call->data, request->data_length);
	case OP_FETCH:
		if (request->argument[1] != 0)
			s->asking_told = false; /* though it may get what was given back */
		call->reply.data_length = (uint32_t)socket_give_returned(s, call->passed, call->result, request->argument[0] != 0);
		if (call->reply.data_length == 0)
			call->reply.data_length = (uint32_t)socket_fetch(s, call->result, request->argument[0] != 0);
		return call->reply.data_length == 0 ? EAGAIN : 0;
	default:
		return EOPNOTSUPP;
	}
}

void call_run(struct call *call, struct sctp_socket *s)
{
	int error;

	if (s != NULL) {
		if (!socket_is_connecting(s)) /* a plug stays */
			outbound_take_all(s);
		socket_note_error(s);
	}
	error = run(call, s);
	call->reply.error = error;
	if (error != 0 && error != EINPROGRESS && error != EAGAIN)
		call->reply.result = -1;
	if (s != NULL) {
		socket_plug(s, call->passed);
		socket_tell_state(s);
		socket_look(s);
	}
}
