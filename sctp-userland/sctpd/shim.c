#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bound.h"
#include "closer.h"
#include "interfaces.h"
#include "lifecycle.h"
#include "options.h"
#include "outbound.h"

#define VERDICTS 1024
#define LISTENS 10 /* a listener's state in /proc/net/tcp */

struct shim {
	struct watch tcp; /* first: the connection to the program, until it has accepted it */
	struct sctp_socket *s;
	struct shim *next, *listener; /* of those that are not accepted yet */
	struct sockaddr_in6 name; /* of that connection; of a listener: its own */
	size_t taken; /* bytes: lie in the pair, though they were passed on */
	bool peer_knows, refused, listens, receives_nothing;
	int kept; /* the client's end, while no client has it; -1: one has */
	uint64_t due_ms; /* when a connect() is over, whatever came */
	uint32_t rto_min_ms;
};

static struct shim *unaccepted;

static struct {
	struct sockaddr_in6 peer;
	uint64_t at_ms;
	enum shim_verdict verdict;
} verdicts[VERDICTS];

static unsigned int verdict_index(const struct sockaddr_in6 *peer)
{
	return (address_hash((const struct sockaddr *)peer) * 31 + address_port((const struct sockaddr *)peer)) % VERDICTS;
}

static bool same_end(const struct sockaddr_in6 *first, const struct sockaddr_in6 *second)
{
	return address_port((const struct sockaddr *)first) == address_port((const struct sockaddr *)second) &&
	       address_same((const struct sockaddr *)first, (const struct sockaddr *)second);
}

static enum shim_verdict verdict_of(const struct sockaddr_in6 *peer, uint64_t *age_ms)
{
	const unsigned int i = verdict_index(peer);

	*age_ms = loop_now_ms() - verdicts[i].at_ms;
	return verdicts[i].verdict != SHIM_UNKNOWN && *age_ms < SHIM_VERDICT_MS && same_end(&verdicts[i].peer, peer) ? verdicts[i].verdict :
														       SHIM_UNKNOWN;
}

static void keep_verdict(const struct sockaddr_in6 *peer, enum shim_verdict verdict)
{
	const unsigned int i = verdict_index(peer);

	verdicts[i].peer = *peer;
	verdicts[i].at_ms = loop_now_ms();
	verdicts[i].verdict = verdict;
}

int shim_verdict(struct call *call)
{
	struct sockaddr_in6 peer = { 0 };
	uint64_t age_ms;
	uint32_t age;

	if (call->request->address_length > sizeof(peer) || packed_addresses(call->address, call->request->address_length) != 1)
		return EINVAL;
	memcpy(&peer, call->address, call->request->address_length);
	address_unmap(&peer);
	call->reply.result = (int32_t)verdict_of(&peer, &age_ms);
	age = (uint32_t)age_ms;
	memcpy(call->result, &age, sizeof(age));
	call->reply.data_length = sizeof(age);
	return 0;
}

bool shim_begin(struct sctp_socket *s, int client_fd, bool given)
{
	static const char plug[PLUG_SIZE];
	const int on = 1;

	s->shim = calloc(1, sizeof(*s->shim));
	if (s->shim == NULL)
		return false;
	*s->shim = (struct shim){ .tcp.fd = -1, .s = s, .kept = -1 };
	s->events[LX_ADAPTATION_INDICATION - 0x8000] = 1;
	s->way = 1;
	s->plugged = !given;
	s->watch.events = EPOLLET | EPOLLRDHUP | (given ? EPOLLIN : 0);
	setsockopt(s->watch.fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on));
	if (!given && send(client_fd, plug, sizeof(plug), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return false;
	s->shim->taken = given ? 1 : sizeof(plug) + 1;
	return send(client_fd, plug, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1; /* by itself, as the kernel counts whole buffers */
}

void shim_prepare(struct sctp_socket *s)
{
	const struct sctp_setadaptation adaptation = { SHIM_ADAPTATION };
	const uint32_t on = 1;

	if (s->shim == NULL)
		return;
	usrsctp_setsockopt(s->so, IPPROTO_SCTP, SCTP_ADAPTATION_LAYER, &adaptation, sizeof(adaptation));
	usrsctp_setsockopt(s->so, IPPROTO_SCTP, SCTP_NODELAY, &on, sizeof(on));
	outbound_note_room(s, s->shim->kept);
}

/* A first timeout four times as long; a peer with the same rule acknowledges in half of it. */
static void set_timeouts(struct sctp_socket *s, int32_t rto_min_ms)
{
	struct sctp_rtoinfo timeouts = { .srto_initial = (uint32_t)rto_min_ms * 4, .srto_min = (uint32_t)rto_min_ms };
	struct sctp_sack_info sack = { .sack_delay = (uint32_t)rto_min_ms / 2 };

	if (rto_min_ms <= 0 || rto_min_ms > SHIM_RTO_MAX_MS)
		return;
	if (timeouts.srto_initial > 3000)
		timeouts.srto_initial = rto_min_ms > 3000 ? (uint32_t)rto_min_ms : 3000;
	sack.sack_delay = sack.sack_delay > 200 ? 200 : sack.sack_delay;
	usrsctp_setsockopt(s->so, IPPROTO_SCTP, SCTP_RTOINFO, &timeouts, sizeof(timeouts));
	usrsctp_setsockopt(s->so, IPPROTO_SCTP, SCTP_DELAYED_SACK, &sack, sizeof(sack));
}

/* Stop keeping the client's end: then the socket ends, by ABORT if wanted. */
static void let_go(struct shim *shim, bool abort)
{
	const struct linger linger = { 1, 0 };

	if (shim->kept < 0)
		return;
	if (abort && shim->s->so != NULL)
		usrsctp_setsockopt(shim->s->so, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	close_elsewhere(shim->kept); /* an end of a pair whose other end a client had for a while */
	shim->kept = -1;
	shim->due_ms = 0;
}

/* It waits for accept() no more. */
static void leave_unaccepted(struct shim *shim)
{
	struct shim **link;

	if (shim->tcp.fd < 0)
		return;
	for (link = &unaccepted; *link != shim;)
		link = &(*link)->next;
	*link = shim->next;
	loop_remove(&shim->tcp);
	close(shim->tcp.fd);
	shim->tcp.fd = -1;
	if (shim->listener != NULL) {
		shim->listener->s->waiting_count--;
		socket_look(shim->listener->s);
	}
}

void shim_end(struct sctp_socket *s)
{
	struct shim *shim = s->shim, *other;

	if (shim == NULL)
		return;
	for (other = unaccepted; other != NULL; other = other->next)
		if (other->listener == shim)
			other->listener = NULL;
	leave_unaccepted(shim);
	let_go(shim, false);
	free(shim);
	s->shim = NULL;
}

bool shim_may(int operation)
{
	return operation == OP_BIND || operation == OP_BINDX || operation == OP_SHIM_CONNECT || operation == OP_SETSOCKOPT ||
	       operation == OP_GETSOCKOPT || operation == OP_GETSOCKNAME || operation == OP_GETPEERNAME;
}

int shim_connect(struct call *call, struct sctp_socket *s)
{
	const int32_t *argument = call->request->argument;
	const bool may_wait = argument[2] == 0;
	struct sockaddr_in6 peer = { 0 };
	enum shim_verdict verdict;
	uint64_t age_ms;
	int error;

	if (s->shim == NULL || s->shim->listens || s->state != SOCKET_OPEN || argument[1] < 1 || argument[1] > SHIM_WAIT_MAX_MS ||
	    call->request->address_length > sizeof(peer) || packed_addresses(call->address, call->request->address_length) != 1)
		return EINVAL;
	memcpy(&peer, call->address, call->request->address_length);
	address_unmap(&peer);
	verdict = verdict_of(&peer, &age_ms);
	if (verdict == SHIM_REFUSED || verdict == SHIM_SILENT)
		return EPROTONOSUPPORT;
	if (interfaces_have(&peer))
		shim_look_for_listeners(); /* one that was closed just now refuses at once, as TCP does */
	set_timeouts(s, argument[0]);
	error = call_connect(call, s);
	if (error != EINPROGRESS)
		return error;
	s->peer = peer;
	s->shim->due_ms = loop_now_ms() + (uint64_t)argument[1];
	if (may_wait || verdict == SHIM_SCTP)
		return error;
	s->shim->kept = fcntl(call->passed, F_DUPFD_CLOEXEC, 0);
	sockets_wait_for_time();
	return EAGAIN;
}

void shim_connect_ended(struct sctp_socket *s, int error)
{
	if (s->shim == NULL || s->shim->due_ms == 0)
		return;
	keep_verdict(&s->peer, error == 0 ? SHIM_SCTP : error == ECONNREFUSED ? SHIM_REFUSED : SHIM_SILENT);
	s->shim->due_ms = 0;
	let_go(s->shim, true);
}

bool shim_waits(const struct sctp_socket *s)
{
	if (s->shim == NULL || s->shim->kept < 0 || s->shim->due_ms == 0)
		return false;
	if (loop_now_ms() >= s->shim->due_ms) {
		keep_verdict(&s->peer, SHIM_SILENT);
		let_go(s->shim, true);
	}
	return true;
}

/* From here on the descriptor's end is an end in order. */
static void take_last(struct sctp_socket *s)
{
	char byte;

	recv(s->watch.fd, &byte, sizeof(byte), MSG_DONTWAIT);
}

void shim_hung_up(struct sctp_socket *s)
{
	if (s->shim == NULL)
		return;
	take_last(s); /* both sides are shut down: it may be open */
	if (s->state == SOCKET_CONNECTING && s->shim->due_ms != 0 && loop_now_ms() + 1 >= s->shim->due_ms)
		keep_verdict(&s->peer, SHIM_SILENT);
}

void shim_learn(struct sctp_socket *s, const char *notification, size_t length)
{
	struct sctp_adaptation_event event;

	if (s->shim == NULL || length < sizeof(event))
		return;
	memcpy(&event, notification, sizeof(event));
	if (event.sai_type == SCTP_ADAPTATION_INDICATION)
		s->shim->peer_knows = event.sai_adaptation_ind == SHIM_ADAPTATION;
}

ssize_t shim_take(struct sctp_socket *s, char *bytes)
{
	static char all[PLUG_SIZE + 1 + SHIM_PART];
	static union passed_room room; /* for descriptors, which no TCP program has to send */
	const size_t old = s->shim->taken;
	struct pollfd end = { s->watch.fd, POLLRDHUP, 0 };
	ssize_t got, done, part;

	if (s->state == SOCKET_OPEN || s->state == SOCKET_CONNECTING)
		return 0; /* the plug stays */
	got = recv(s->watch.fd, all, old + SHIM_PART, MSG_PEEK | MSG_DONTWAIT);
	if (got < 0 && errno == ECONNRESET) { /* that is told once, before what lies there */
		s->left_unread = true;
		got = recv(s->watch.fd, all, old + SHIM_PART, MSG_PEEK | MSG_DONTWAIT);
	}
	if (got < 0 || (size_t)got < old)
		return 0;
	memcpy(bytes, all + old, (size_t)got - old);
	for (done = 0; done < got - 1; done += part) {
		struct iovec vector = { all, (size_t)(got - 1 - done) };
		struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1, .msg_control = &room, .msg_controllen = sizeof(room) };

		part = recvmsg(s->watch.fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		if (part <= 0)
			break;
		if (message.msg_controllen > 0)
			close_passed(&message, NULL);
	}
	s->shim->taken = 1;
	if (got > (ssize_t)old)
		return got - (ssize_t)old;
	return !s->sends_nothing && poll(&end, 1, 0) > 0 && end.revents & POLLRDHUP ? -1 : 0;
}

void shim_end_sending(struct sctp_socket *s)
{
	struct pollfd state = { s->watch.fd, 0, 0 };
	struct sctp_sndinfo end = { .snd_ppid = SHIM_END };

	s->sends_nothing = true;
	if (s->state != SOCKET_CONNECTED || (poll(&state, 1, 0) > 0 && state.revents & POLLHUP))
		return; /* both sides are shut down: it is a close() */
	socket_enter(s, SOCKET_WRITE_SHUT);
	if (!s->shim->peer_knows)
		usrsctp_shutdown(s->so, SHUT_WR);
	else if (usrsctp_sendv(s->so, "", 1, NULL, 0, &end, sizeof(end), SCTP_SENDV_SNDINFO, 0) < 0)
		shim_refuse(s);
}

void shim_end_receiving(struct sctp_socket *s)
{
	shutdown(s->watch.fd, SHUT_WR);
	s->shim->receives_nothing = true;
	socket_look(s);
}

/* As TCP does when the peer has closed: what is sent after that is answered by a reset. */
void shim_refuse(struct sctp_socket *s)
{
	s->shim->refused = true;
	socket_look(s);
}

uint32_t shim_ppid(const struct sctp_socket *s)
{
	return s->shim->peer_knows ? SHIM_BYTES : 0;
}

bool shim_is_end(const struct sctp_socket *s, const struct inbound *header)
{
	return s->shim != NULL && s->shim->peer_knows && header->ppid == SHIM_END;
}

bool shim_resets(const struct sctp_socket *s)
{
	return s->shim != NULL && (s->shim->refused || s->state == SOCKET_BROKEN);
}

bool shim_is_over(struct sctp_socket *s)
{
	if (s->shim == NULL || s->state == SOCKET_GONE || s->unsent != NULL || s->shim->listens)
		return false;
	if (shim_resets(s))
		return true;
	if (s->shim->receives_nothing && s->sends_nothing)
		take_last(s); /* the kernel takes that for a hang-up */
	return s->shim->receives_nothing && s->sends_nothing;
}

bool shim_has_plug(const struct sctp_socket *s)
{
	return s->shim != NULL;
}

/* Mark the listeners that /proc lists: first of all. */
static void mark_listed(const char *path, bool v6)
{
	FILE *file = fopen(path, "re");
	char line[512], digits[33];
	unsigned int port, state, word;
	struct sctp_socket *s;
	int i;

	while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
		struct sockaddr_in6 name = { .sin6_family = v6 ? AF_INET6 : AF_INET };
		struct sockaddr_in *v4 = (struct sockaddr_in *)&name;

		if (sscanf(line, " %*u: %32[0-9A-F]:%X %*[0-9A-F]:%*X %X", digits, &port, &state) != 3)
			continue; /* the headline */
		if (state != LISTENS)
			break;
		for (i = v6 ? 3 : 0; i >= 0; i--) { /* words in this machine's order */
			sscanf(digits + 8 * i, "%8X", &word);
			digits[8 * i] = '\0';
			memcpy(v6 ? (char *)&name.sin6_addr + 4 * i : (char *)&v4->sin_addr, &word, sizeof(word));
		}
		name.sin6_port = htons((uint16_t)port);
		for (s = sockets_first(); s != NULL; s = s->next)
			if (s->shim != NULL && s->shim->listens && same_end(&s->shim->name, &name))
				s->shim->refused = false;
	}
	if (file != NULL)
		fclose(file);
}

void shim_look_for_listeners(void)
{
	struct sctp_socket *s;
	bool some = false;

	for (s = sockets_first(); s != NULL; s = s->next)
		if (s->shim != NULL && s->shim->listens)
			s->shim->refused = some = true;
	if (!some)
		return;
	mark_listed("/proc/net/tcp", false);
	mark_listed("/proc/net/tcp6", true);
	for (s = sockets_first(); s != NULL; s = s->next)
		if (s->shim != NULL && s->shim->listens && s->shim->refused) {
			usrsctp_listen(s->so, 0);
			let_go(s->shim, false);
		}
}

/* The number that an option of this descriptor has; 0 if it has none. */
static int number_of(int fd, int level, int option)
{
	int value = 0;
	socklen_t length = sizeof(value);

	return getsockopt(fd, level, option, &value, &length) == 0 ? value : 0;
}

/* Carry out another call about the socket, as its listener's owner, who proved by it that the port is his. */
static int sub_call(int (*function)(struct call *, struct sctp_socket *), struct sctp_socket *s, int argument, const void *address, size_t length)
{
	static const struct ucred root = { 0 };
	const struct request request = { .argument = { argument }, .address_length = (uint32_t)length };
	struct call call = { .request = &request, .address = address, .caller = &root, .passed = s->shim->kept, .descriptor = -1 };

	return function(&call, s);
}

int shim_listen(struct call *call)
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
	s->shim->listens = true;
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
		set_timeouts(s, call->request->argument[1]);
		error = sub_call(call_listen, s, call->request->argument[0], NULL, 0);
	}
	shim_look_for_listeners(); /* one of another network namespace is none */
	if (error == 0 && s->shim->refused)
		error = EINVAL;
	if (error != 0)
		let_go(s->shim, false);
	return error;
}

/* The other side of its connection: nobody takes it any more. */
static void tcp_ready(struct watch *watch, uint32_t events)
{
	struct shim *shim = (struct shim *)watch;

	if (!(events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)))
		return;
	if (shim->listener != NULL)
		shim_look_for_listeners();
	leave_unaccepted(shim);
	let_go(shim, true);
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

void shim_accept_all(struct sctp_socket *s)
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
		set_timeouts(made, (int32_t)s->shim->rto_min_ms);
		if (!connect_tcp(made->shim, s)) {
			let_go(made->shim, true);
			continue;
		}
		made->shim->listener = s->shim;
		made->shim->next = unaccepted;
		unaccepted = made->shim;
		s->waiting_count++;
	}
	socket_limit_waiting(s);
}

int shim_accept(struct call *call)
{
	struct sockaddr_in6 peer = { 0 };
	socklen_t length = sizeof(peer);
	struct shim *shim;

	if (getpeername(call->passed, (struct sockaddr *)&peer, &length) < 0 || address_length((struct sockaddr *)&peer) == 0)
		return EINVAL;
	address_unmap(&peer);
	for (shim = unaccepted; shim != NULL && !same_end(&shim->name, &peer);)
		shim = shim->next;
	if (shim == NULL)
		return ENOENT;
	leave_unaccepted(shim);
	call->descriptor = shim->kept;
	shim->kept = -1;
	peer = shim->s->peer;
	call->reply.address_length = address_map(&peer, shim->s->domain);
	memcpy(call->result, &peer, call->reply.address_length);
	return 0;
}
