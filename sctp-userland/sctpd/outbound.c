/* Messages that come one way, down a socket's pair. They wait there, where the kernel counts them, while usrsctp has no room; so a program that
 * sends too much finds its descriptor not writable. On a one-to-many socket they wait for each other, as in a kernel, whose send buffer its
 * associations share. A call comes after all that was sent before it: what lies there then is taken whatever room there is, which is no more than
 * the pair holds. */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "bound.h"
#include "closer.h"
#include "expiry.h"
#include "inbound.h"
#include "limits.h"
#include "outbound.h"
#include "shim.h"
#include "translate.h"
#include "usrsctp_internal.h"

#define ONE_WAY_FLAGS (LX_UNORDERED | LX_SACK_IMMEDIATELY | LX_PR_SCTP_MASK) /* all else has to be a call, which judges it */
#define BATCH 16
#define PER_TURN 8	   /* batches */
#define PAIR_MAX 212992	   /* bytes asked for by SO_SNDBUF on the client's end; the kernel doubles it */
#define SLACK (2 * 1024 * 1024) /* bytes of usrsctp's buffer beyond what the program may fill: more than a pair holds */
#define CHUNKS_MAX 2048	   /* messages that wait in usrsctp, however short */

static struct {
	struct outbound header;
	char bytes[sizeof(struct sockaddr_in6) + MESSAGE_MAX + 1];
} taken[BATCH];

static void set_buffer(struct sctp_socket *s, int size)
{
	usrsctp_setsockopt(s->so, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
}

bool outbound_may_come(struct sctp_socket *s, int client_fd, uint32_t association, struct way *way)
{
	struct lx_status status;

	if (s->calls_only || (IS_ONE_TO_ONE(s) ? s->state != SOCKET_CONNECTED : association == 0) ||
	    translate_status(s, association, &status) != 0 || status.sstat_state != LX_ESTABLISHED)
		return false;
	if (s->way == 0) {
		s->way = 1;
		outbound_note_room(s, client_fd);
	}
	*way = (struct way){ s->way, status.sstat_outstrms };
	return true;
}

void outbound_change_way(struct sctp_socket *s)
{
	if (s->way != 0)
		s->way = s->way < UINT16_MAX ? s->way + 1 : 1;
	socket_tell_state(s);
}

void outbound_note_room(struct sctp_socket *s, int client_fd)
{
	const int size = s->send_buffer < PAIR_MAX ? s->send_buffer : PAIR_MAX;

	if (s->way == 0)
		return;
	s->send_room = (int)s->so->send.room;
	set_buffer(s, s->send_room + SLACK);
	setsockopt(client_fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
}

bool outbound_has_room(struct sctp_socket *s, uint32_t association)
{
	struct lx_status status;

	if (limits_reached() || s->held_bytes >= (size_t)s->send_buffer ||
	    (s->way != 0 && translate_buffer_use(s, association).sending >= (unsigned int)s->send_room))
		return false;
	return s->way == 0 || translate_status(s, association, &status) != 0 ||
	       (unsigned int)status.sstat_penddata + status.sstat_unackdata < CHUNKS_MAX;
}

static ssize_t give(struct sctp_socket *s, const struct send_parameters *send, const struct sockaddr_in6 *to, const char *bytes, size_t length)
{
	ssize_t sent;

	do {
		sent = translate_send(s, send, to, bytes, length);
		if (sent >= 0 || errno != EAGAIN || s->so->send.room >= (unsigned int)s->send_room + 8U * SLACK)
			return sent;
		set_buffer(s, (int)s->so->send.room + SLACK);
	} while (true);
}

static void pass_on(struct sctp_socket *s, size_t which, size_t length)
{
	const struct outbound *header = &taken[which].header;
	struct send_parameters send = header->send;
	const struct sockaddr_in6 *named = NULL;
	const char *bytes = taken[which].bytes;
	struct sockaddr_in6 to = { 0 };
	uint32_t association = IS_ONE_TO_ONE(s) ? 0 : send.association;

	if (length >= sizeof(header->type) && header->type != OUTBOUND_DATA && header->type != OUTBOUND_PLUG && s->error == 0) {
		s->error = EOPNOTSUPP; /* written past the library: by stdio, or by a system call of the program's own */
		socket_push(s, &(struct inbound){ .type = INBOUND_ERROR, .flags = INBOUND_EOR }, NULL, 0);
	}
	if (length < sizeof(*header) || header->type != OUTBOUND_DATA || s->way == 0 || send.flags & ~ONE_WAY_FLAGS)
		return; /* a plug, or none that the library sends */
	length -= sizeof(*header);
	if (header->address_length > sizeof(to) || length < header->address_length || length - header->address_length > MESSAGE_MAX)
		return;
	length -= header->address_length;
	limits_note(length);
	if (header->address_length > 0 && !IS_ONE_TO_ONE(s)) {
		memcpy(&to, bytes, header->address_length);
		association = address_unmap(&to) > 0 ? usrsctp_getassocid(s->so, (struct sockaddr *)&to) : 0;
		named = &to;
	}
	bytes += header->address_length;
	send = translate_defaults(s, association, send);
	errno = ENOTCONN; /* it was there: only a call begins another one */
	if ((association != 0 || IS_ONE_TO_ONE(s)) &&
	    (expiry_holds(s, association, &send, header->sent_ms, bytes, length) || give(s, &send, named, bytes, length) >= 0)) {
		socket_went_on(s);
		if (s->full == 0 && !IS_ONE_TO_ONE(s) && !outbound_has_room(s, association))
			s->full = association;
		return;
	}
	s->lost = errno;
	expiry_tell_failed(s, association, &send, bytes, length);
}

/* Bytes of a program that takes this for a TCP connection. Return 0, BATCH: more may be there. */
static int take_bytes(struct sctp_socket *s)
{
	const struct send_parameters send = { .ppid = shim_ppid(s), .gives = GIVES_INFORMATION };
	static char bytes[SHIM_PART];
	const ssize_t length = shim_take(s, bytes);

	if (length < 0)
		shim_end_sending(s);
	if (length <= 0)
		return 0;
	limits_note((uint64_t)length);
	if (give(s, &send, NULL, bytes, (size_t)length) < 0)
		shim_refuse(s);
	else
		socket_went_on(s);
	return BATCH;
}

/* One batch; return how many there were, BATCH: more may be there. */
static int take(struct sctp_socket *s)
{
	static struct iovec vectors[BATCH];
	static struct mmsghdr messages[BATCH];
	static union passed_room rooms[BATCH]; /* for descriptors, which nobody has to send here */
	const unsigned int most = closer_is_behind() ? 1 : BATCH;
	int i, count;

	if (s->shim != NULL)
		return take_bytes(s);
	for (i = 0; i < BATCH; i++) {
		vectors[i] = (struct iovec){ &taken[i], sizeof(taken[i]) };
		messages[i].msg_hdr = (struct msghdr){ .msg_iov = &vectors[i], .msg_iovlen = 1, .msg_control = &rooms[i],
						       .msg_controllen = sizeof(rooms[i]) };
	}
	count = recvmmsg(s->watch.fd, messages, most, MSG_DONTWAIT | MSG_CMSG_CLOEXEC, NULL);
	if (count < 0 && errno == ECONNRESET) { /* that is told once, before what lies there */
		s->left_unread = true;
		count = recvmmsg(s->watch.fd, messages, most, MSG_DONTWAIT | MSG_CMSG_CLOEXEC, NULL);
	}
	for (i = 0; i < count; i++)
		if (messages[i].msg_hdr.msg_controllen > 0)
			close_passed(&messages[i].msg_hdr, NULL);
	for (i = 0; i < count && messages[i].msg_len > 0; i++)
		pass_on(s, (size_t)i, messages[i].msg_len);
	if (i < count && !s->sends_nothing) {
		struct pollfd end = { s->watch.fd, POLLRDHUP, 0 };

		s->sends_nothing = poll(&end, 1, 0) > 0 && end.revents & POLLRDHUP;
	}
	return i == (int)most ? BATCH : i;
}

static bool is_over(struct sctp_socket *s, uint32_t association)
{
	struct lx_status status;

	return translate_status(s, association, &status) != 0 || status.sstat_state == LX_SHUTDOWN_RECEIVED ||
	       status.sstat_state == LX_SHUTDOWN_ACK_SENT;
}

bool outbound_is_over(struct sctp_socket *s)
{
	return s->way != 0 && is_over(s, 0);
}

/* The room of a one-to-many socket depends on the association that had none. */
static bool has_room(struct sctp_socket *s)
{
	const bool is_known = IS_ONE_TO_ONE(s) ? s->way != 0 : s->full != 0;

	if (!outbound_has_room(s, s->full) && !(is_known && is_over(s, s->full)))
		return false;
	s->full = 0;
	return true;
}

bool outbound_take(struct sctp_socket *s)
{
	int turn;

	for (turn = 0; turn < PER_TURN; turn++) {
		if (!has_room(s)) {
			s->blocked = true;
			s->unasked = false;
			return true;
		}
		if (take(s) < BATCH)
			return false;
	}
	socket_look(s); /* the others have their turn */
	return true;
}

void outbound_take_all(struct sctp_socket *s)
{
	while (s->way != 0 && take(s) == BATCH)
		;
}

void outbound_end(uint16_t port, struct sockaddr *peer)
{
	struct sctp_socket *s;

	for (s = sockets_first(); s != NULL; s = s->next)
		if (s->port == port && s->way != 0 && usrsctp_getassocid(s->so, peer) != 0) {
			s->ends = IS_ONE_TO_ONE(s);
			outbound_change_way(s); /* before it is looked what lies there */
			outbound_take_all(s);
			expiry_pass_all(s);
			socket_look(s);
		}
}
