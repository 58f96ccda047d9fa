/* TCP over SCTP: the calls that set it up. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "bound.h"
#include "calls.h"
#include "interfaces.h"
#include "lifecycle.h"
#include "listeners.h"
#include "options.h"
#include "shim.h"

int call_shim_verdict(struct call *call)
{
	struct sockaddr_in6 peer = { 0 };
	uint64_t age_ms;
	uint32_t age;

	if (call->request->address_length > sizeof(peer) || packed_addresses(call->address, call->request->address_length) != 1)
		return EINVAL;
	memcpy(&peer, call->address, call->request->address_length);
	address_unmap(&peer);
	call->reply.result = (int32_t)shim_verdict_of(&peer, &age_ms);
	age = (uint32_t)age_ms;
	memcpy(call->result, &age, sizeof(age));
	call->reply.data_length = sizeof(age);
	return 0;
}

bool call_shim_may(int operation)
{
	return operation == OP_BIND || operation == OP_BINDX || operation == OP_SHIM_CONNECT || operation == OP_SETSOCKOPT ||
	       operation == OP_GETSOCKOPT || operation == OP_GETSOCKNAME || operation == OP_GETPEERNAME;
}

int call_shim_connect(struct call *call, struct sctp_socket *s)
{
	const int32_t *argument = call->request->argument;
	const bool may_wait = argument[2] == 0;
	struct sockaddr_in6 peer = { 0 };
	struct sctp_rtoinfo timeouts;
	enum shim_verdict verdict;
	uint64_t age_ms;
	int error;

	if (s->shim == NULL || s->shim->listens || s->state != SOCKET_OPEN || argument[1] < 1 || argument[1] > SHIM_WAIT_MAX_MS ||
	    call->request->address_length > sizeof(peer) || packed_addresses(call->address, call->request->address_length) != 1)
		return EINVAL;
	memcpy(&peer, call->address, call->request->address_length);
	address_unmap(&peer);
	verdict = shim_verdict_of(&peer, &age_ms);
	if (verdict == SHIM_REFUSED || verdict == SHIM_SILENT)
		return EPROTONOSUPPORT;
	if (interfaces_have(&peer))
		listeners_look(); /* one that was closed just now refuses at once, as TCP does */
	shim_set_timeouts(s, argument[0]);
	timeouts = shim_hurry(s, (uint32_t)argument[1]);
	error = call_connect(call, s);
	if (error != EINPROGRESS)
		return error;
	usrsctp_setsockopt(s->so, IPPROTO_SCTP, SCTP_RTOINFO, &timeouts, sizeof(timeouts));
	s->peer = peer;
	s->due_ms = loop_now_ms() + (uint64_t)argument[1];
	sockets_wait_for_time();
	if (may_wait || verdict == SHIM_SCTP)
		return error;
	s->shim->kept = fcntl(call->passed, F_DUPFD_CLOEXEC, 0);
	return EAGAIN;
}

/* The number that an option of this descriptor has; 0 if it has none. */
static int number_of(int fd, int level, int option)
{
	int value = 0;
	socklen_t length = sizeof(value);

	return getsockopt(fd, level, option, &value, &length) == 0 ? value : 0;
}

/* Whether a client's socket is of this network namespace (Linux 5.14): in another one anybody can have any address and port. */
static bool is_here(int fd, const struct sctp_socket *s)
{
	uint64_t theirs, own;
	socklen_t length = sizeof(theirs);

	return getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &theirs, &length) == 0 &&
	       getsockopt(s->watch.fd, SOL_SOCKET, SO_NETNS_COOKIE, &own, &length) == 0 && theirs == own;
}

/* Carry out another call about the socket, as its listener's owner, who proved by it that the port is his. */
static int sub_call(int (*function)(struct call *, struct sctp_socket *), struct sctp_socket *s, int argument, const void *address, size_t length)
{
	static const struct ucred root = { 0 };
	const struct request request = { .argument = { argument }, .address_length = (uint32_t)length };
	struct call call = { .request = &request, .address = address, .caller = &root, .passed = s->shim->kept, .descriptor = -1 };

	return function(&call, s);
}

/* The other side of its connection: nobody takes it any more. */
static void tcp_ready(struct watch *watch, uint32_t events)
{
	struct shim *shim = (struct shim *)watch;

	if (!(events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)))
		return;
	if (shim->listener != NULL)
		listeners_look();
	shim_leave_unaccepted(shim);
	shim_let_go(shim, true);
}

/* The address by which this host reaches the listener of the program. */
static struct sockaddr_in6 loopback_for(const struct sctp_socket *s, bool *is_any)
{
	struct sockaddr_in6 to = s->shim->name;
	const struct in6_addr mapped = { .s6_addr = { [10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1 } };

	*is_any = address_is_any((struct sockaddr *)&to);
	if (*is_any && to.sin6_family == AF_INET)
		((struct sockaddr_in *)&to)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else if (*is_any)
		to.sin6_addr = s->v6only ? in6addr_loopback : mapped;
	return to;
}

/* Begin the connection to the program. Return whether it goes on. */
static bool connect_tcp(struct shim *shim, const struct sctp_socket *s)
{
	bool is_any;
	struct sockaddr_in6 to = loopback_for(s, &is_any);
	struct sockaddr_in6 from = { .sin6_family = to.sin6_family };
	socklen_t length = sizeof(shim->name);
	const int fd = socket(to.sin6_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return false;
	if (to.sin6_family == AF_INET)
		((struct sockaddr_in *)&from)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		from.sin6_addr = IN6_IS_ADDR_V4MAPPED(&to.sin6_addr) ? to.sin6_addr : in6addr_loopback;
	shim->tcp = (struct watch){ fd, EPOLLRDHUP | EPOLLET, tcp_ready };
	if (bind(fd, (struct sockaddr *)&from, address_length((struct sockaddr *)&from)) < 0 ||
	    (connect(fd, (struct sockaddr *)&to, address_length((struct sockaddr *)&to)) < 0 && errno != EINPROGRESS) ||
	    getsockname(fd, (struct sockaddr *)&shim->name, &length) < 0 || loop_add(&shim->tcp) < 0) {
		close(fd);
		shim->tcp.fd = -1;
		return false;
	}
	address_unmap(&shim->name);
	return true;
}

static void accept_all(struct sctp_socket *s)
{
	struct sctp_socket *made;
	struct sockaddr_in6 peer;
	struct socket *so;
	int fd;

	while (!s->shim->refused && s->waiting_count <= s->backlog) {
		socklen_t length = sizeof(peer);

		so = usrsctp_accept(s->so, (struct sockaddr *)&peer, &length);
		if (so == NULL && errno == EAGAIN)
			break;
		if (so == NULL)
			continue; /* that association broke before */
		made = socket_create(s->domain, SHIM_TYPE, so, &s->owner, &fd);
		if (made == NULL) {
			close_stack_socket(s, so, true);
			continue;
		}
		made->shim->kept = fd;
		call_inherit(made, s);
		shim_set_timeouts(made, (int32_t)s->shim->rto_min_ms);
		if (!connect_tcp(made->shim, s)) {
			shim_let_go(made->shim, true);
			continue;
		}
		made->shim->listener = s->shim;
		made->shim->next = shims_unaccepted;
		shims_unaccepted = made->shim;
		s->waiting_count++;
	}
	socket_limit_waiting(s);
}

int call_shim_listen(struct call *call)
{
	struct sockaddr_in6 name = { 0 };
	socklen_t length = sizeof(name);
	const int v6only = number_of(call->passed, IPPROTO_IPV6, IPV6_V6ONLY);
	struct sctp_socket *s;
	int fd, error;

	if (number_of(call->passed, SOL_SOCKET, SO_PROTOCOL) != IPPROTO_TCP || number_of(call->passed, SOL_SOCKET, SO_ACCEPTCONN) == 0 ||
	    getsockname(call->passed, (struct sockaddr *)&name, &length) < 0 || address_length((struct sockaddr *)&name) == 0)
		return EINVAL;
	s = socket_create(name.sin6_family, SHIM_TYPE, NULL, call->caller, &fd);
	if (s == NULL)
		return errno;
	s->shim->kept = fd;
	listeners_watch();
	s->shim->listens = true;
	s->shim->accept_all = accept_all;
	s->shim->name = name;
	s->shim->rto_min_ms = (uint32_t)call->request->argument[1];
	if (v6only != 0 && name.sin6_family == AF_INET6) {
		s->v6only = true;
		options_prepare(s);
	}
	error = sub_call(call_bind, s, 0, &name, address_length((struct sockaddr *)&name));
	if (error == 0 && call->request->address_length > 0)
		error = sub_call(call_bindx, s, 1, call->address, call->request->address_length);
	if (error == 0) {
		shim_set_timeouts(s, call->request->argument[1]);
		error = sub_call(call_listen, s, call->request->argument[0], NULL, 0);
	}
	if (error == 0 && !is_here(call->passed, s))
		error = EINVAL;
	if (error != 0)
		shim_let_go(s->shim, false);
	return error;
}

int call_shim_accept(struct call *call)
{
	struct sockaddr_in6 peer = { 0 };
	socklen_t length = sizeof(peer);
	struct shim *shim;

	if (getpeername(call->passed, (struct sockaddr *)&peer, &length) < 0 || address_length((struct sockaddr *)&peer) == 0)
		return EINVAL;
	address_unmap(&peer);
	for (shim = shims_unaccepted; shim != NULL && !shim_same_end(&shim->name, &peer);)
		shim = shim->next;
	if (shim == NULL || !is_here(call->passed, shim->s))
		return ENOENT;
	shim_leave_unaccepted(shim);
	call->descriptor = shim->kept;
	shim->kept = -1;
	peer = shim->s->peer;
	call->reply.address_length = address_map(&peer, shim->s->domain);
	memcpy(call->result, &peer, call->reply.address_length);
	return 0;
}
