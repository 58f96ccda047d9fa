#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "bound.h"
#include "closer.h"
#include "translate.h"

#define VERDICTS 1024
#define LEAST_RTO_MS 10

struct shim *shims_unaccepted;

static struct {
	struct sockaddr_in6 peer;
	uint64_t at_ms;
	enum shim_verdict verdict;
} verdicts[VERDICTS];

static unsigned int verdict_index(const struct sockaddr_in6 *peer)
{
	return (address_hash((const struct sockaddr *)peer) * 31 + address_port((const struct sockaddr *)peer)) % VERDICTS;
}

bool shim_same_end(const struct sockaddr_in6 *first, const struct sockaddr_in6 *second)
{
	return address_port((const struct sockaddr *)first) == address_port((const struct sockaddr *)second) &&
	       address_same((const struct sockaddr *)first, (const struct sockaddr *)second);
}

enum shim_verdict shim_verdict_of(const struct sockaddr_in6 *peer, uint64_t *age_ms)
{
	const unsigned int i = verdict_index(peer);

	*age_ms = loop_now_ms() - verdicts[i].at_ms;
	return verdicts[i].verdict != SHIM_UNKNOWN && *age_ms < SHIM_VERDICT_MS && shim_same_end(&verdicts[i].peer, peer) ? verdicts[i].verdict :
														       SHIM_UNKNOWN;
}

static void keep_verdict(const struct sockaddr_in6 *peer, enum shim_verdict verdict)
{
	const unsigned int i = verdict_index(peer);

	verdicts[i].peer = *peer;
	verdicts[i].at_ms = loop_now_ms();
	verdicts[i].verdict = verdict;
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
}

void shim_set_timeouts(struct sctp_socket *s, int32_t rto_min_ms)
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

struct sctp_rtoinfo shim_hurry(struct sctp_socket *s, uint32_t wait_ms)
{
	const uint32_t retry_ms = wait_ms / 4 < LEAST_RTO_MS ? LEAST_RTO_MS : wait_ms / 4;
	const struct sctp_rtoinfo soon = { .srto_initial = retry_ms, .srto_min = LEAST_RTO_MS };
	const struct sctp_initmsg often = { .sinit_max_init_timeo = (uint16_t)retry_ms };
	struct sctp_rtoinfo usual = { 0 };
	socklen_t length = sizeof(usual);

	usrsctp_getsockopt(s->so, IPPROTO_SCTP, SCTP_RTOINFO, &usual, &length);
	if (retry_ms < usual.srto_initial)
		usrsctp_setsockopt(s->so, IPPROTO_SCTP, SCTP_RTOINFO, &soon, sizeof(soon));
	usrsctp_setsockopt(s->so, IPPROTO_SCTP, SCTP_INITMSG, &often, sizeof(often));
	return usual;
}

void shim_let_go(struct shim *shim, bool abort)
{
	const struct linger linger = { 1, 0 };

	if (shim->kept < 0)
		return;
	if (abort && shim->s->so != NULL)
		usrsctp_setsockopt(shim->s->so, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	close_elsewhere(shim->kept); /* an end of a pair whose other end a client had for a while */
	shim->kept = -1;
	shim->s->due_ms = 0;
}

/* It waits for accept() no more. */
void shim_leave_unaccepted(struct shim *shim)
{
	struct shim **link;

	if (shim->tcp.fd < 0)
		return;
	for (link = &shims_unaccepted; *link != shim;)
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
	for (other = shims_unaccepted; other != NULL; other = other->next)
		if (other->listener == shim)
			other->listener = NULL;
	shim_leave_unaccepted(shim);
	shim_let_go(shim, false);
	free(shim);
	s->shim = NULL;
}

void shim_connect_ended(struct sctp_socket *s, int error)
{
	if (s->shim == NULL || s->due_ms == 0)
		return;
	keep_verdict(&s->peer, error == 0 ? SHIM_SCTP : error == ECONNREFUSED ? SHIM_REFUSED : SHIM_SILENT);
	s->due_ms = 0;
	shim_let_go(s->shim, error != 0); /* in order: some servers end when a connection is reset */
}

static void end_connect(struct sctp_socket *s, enum shim_verdict verdict)
{
	keep_verdict(&s->peer, verdict);
	s->due_ms = 0;
	shim_refuse(s);
}

void shim_look(struct sctp_socket *s)
{
	struct lx_status status;

	if (s->shim == NULL || s->due_ms == 0 || loop_now_ms() < s->due_ms ||
	    (translate_status(s, 0, &status) == 0 && status.sstat_state >= LX_COOKIE_ECHOED)) /* the peer has answered: only a packet was lost */
		return;
	end_connect(s, SHIM_SILENT);
}

void shim_refused_at(const struct sockaddr_in6 *peer, uint16_t port)
{
	struct sctp_socket *s;

	for (s = sockets_first(); s != NULL; s = s->next)
		if (s->shim != NULL && s->state == SOCKET_CONNECTING && s->due_ms != 0 && s->port == port && shim_same_end(&s->peer, peer))
			end_connect(s, SHIM_REFUSED);
}

/* Take bytes out that were passed on, and what hostile clients sent along: descriptors, which no TCP program has. */
static void discard(struct sctp_socket *s, size_t size)
{
	static char bytes[PLUG_SIZE + 1 + SHIM_PART];
	static union passed_room room;
	ssize_t got;

	do {
		struct iovec vector = { bytes, size };
		struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1, .msg_control = &room, .msg_controllen = sizeof(room) };

		got = size > 0 ? recvmsg(s->watch.fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) : 0;
		if (got > 0 && message.msg_controllen > 0)
			close_passed(&message, NULL);
		size -= got > 0 ? (size_t)got : 0;
	} while (got > 0);
}

void shim_hung_up(struct sctp_socket *s)
{
	if (s->shim == NULL)
		return;
	discard(s, s->shim->taken); /* both sides are shut down, and it may be open: from here on its end is one in order */
	if (s->state == SOCKET_CONNECTING && s->due_ms != 0 && loop_now_ms() + 1 >= s->due_ms)
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
	const size_t old = s->shim->taken;
	struct pollfd end = { s->watch.fd, POLLRDHUP, 0 };
	ssize_t got;

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
	discard(s, (size_t)got - 1);
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
		discard(s, s->shim->taken); /* as above */
	return s->shim->receives_nothing && s->sends_nothing;
}

bool shim_has_plug(const struct sctp_socket *s)
{
	return s->shim != NULL;
}

void shim_accept_all(struct sctp_socket *s)
{
	s->shim->accept_all(s);
}
