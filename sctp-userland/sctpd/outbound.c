/* Messages that come one way, down a one-to-one socket's pair. They wait there, where the kernel counts them, while usrsctp has no room; so a
 * program that sends too much finds its descriptor not writable. A call comes after all that was sent before it: what lies there then is taken
 * whatever room there is, which is no more than the pair holds. */
#include <errno.h>
#include <string.h>

#include "expiry.h"
#include "limits.h"
#include "outbound.h"
#include "translate.h"
#include "usrsctp_internal.h"

#define BATCH 16
#define PER_TURN 8	   /* batches */
#define PAIR_MAX 212992	   /* bytes asked for by SO_SNDBUF on the client's end; the kernel doubles it */
#define SLACK (2 * 1024 * 1024) /* bytes of usrsctp's buffer beyond what the program may fill: more than a pair holds */
#define CHUNKS_MAX 2048	   /* messages that wait in usrsctp, however short */

static struct {
	struct outbound header;
	char bytes[MESSAGE_MAX + 1];
} taken[BATCH];

static void set_buffer(struct sctp_socket *s, int size)
{
	usrsctp_setsockopt(s->so, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
}

void outbound_begin(struct sctp_socket *s, int client_fd)
{
	struct lx_status status;
	int size = s->send_buffer < PAIR_MAX ? s->send_buffer : PAIR_MAX;

	if (s->streams > 0 || s->calls_only || !IS_ONE_TO_ONE(s) || s->state != SOCKET_CONNECTED || translate_status(s, 0, &status) != 0 ||
	    status.state != LX_ESTABLISHED)
		return;
	s->send_room = (int)s->so->send.room;
	set_buffer(s, s->send_room + SLACK);
	setsockopt(client_fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	s->streams = status.outstrms;
}

void outbound_note_room(struct sctp_socket *s)
{
	if (s->streams == 0)
		return;
	s->send_room = (int)s->so->send.room;
	set_buffer(s, s->send_room + SLACK);
}

bool outbound_has_room(struct sctp_socket *s)
{
	struct lx_status status;

	if (limits_reached() || s->held_bytes >= (size_t)s->send_buffer || (s->streams > 0 && s->so->send.used >= (unsigned int)s->send_room))
		return false;
	return s->streams == 0 || translate_status(s, 0, &status) != 0 || (unsigned int)status.penddata + status.unackdata < CHUNKS_MAX;
}

static void pass_on(struct sctp_socket *s, size_t which, size_t length)
{
	const struct outbound *header = &taken[which].header;
	ssize_t sent;

	if (length < sizeof(*header) || header->type != OUTBOUND_DATA || length - sizeof(*header) > MESSAGE_MAX || !socket_means(s)->had_connection)
		return; /* a plug */
	length -= sizeof(*header);
	limits_note(length);
	if (expiry_holds(s, 0, &header->send, header->sent_ms, taken[which].bytes, length))
		return;
	do {
		sent = translate_send(s, &header->send, NULL, taken[which].bytes, length);
		if (sent < 0 && errno == EAGAIN && s->so->send.room < (unsigned int)s->send_room + 8U * SLACK)
			set_buffer(s, (int)s->so->send.room + SLACK);
		else
			break;
	} while (true);
	if (sent >= 0)
		return;
	s->lost = errno;
	expiry_tell_failed(s, 0, &header->send, taken[which].bytes, length);
}

/* One batch; return how many there were. */
static int take(struct sctp_socket *s)
{
	static struct iovec vectors[BATCH];
	static struct mmsghdr messages[BATCH];
	int i, count;

	for (i = 0; i < BATCH; i++) {
		vectors[i] = (struct iovec){ &taken[i], sizeof(taken[i]) };
		messages[i].msg_hdr = (struct msghdr){ .msg_iov = &vectors[i], .msg_iovlen = 1 };
	}
	count = recvmmsg(s->watch.fd, messages, BATCH, MSG_DONTWAIT, NULL);
	if (count < 0 && errno == ECONNRESET) { /* that is told once, before what lies there */
		s->left_unread = true;
		count = recvmmsg(s->watch.fd, messages, BATCH, MSG_DONTWAIT, NULL);
	}
	for (i = 0; i < count && messages[i].msg_len > 0; i++) /* nothing: the end, again and again */
		pass_on(s, (size_t)i, messages[i].msg_len);
	return i;
}

bool outbound_is_over(struct sctp_socket *s)
{
	struct lx_status status;

	return s->streams > 0 && (translate_status(s, 0, &status) != 0 || status.state == LX_SHUTDOWN_RECEIVED ||
				  status.state == LX_SHUTDOWN_ACK_SENT);
}

bool outbound_take(struct sctp_socket *s)
{
	int turn;

	for (turn = 0; turn < PER_TURN; turn++) {
		if (!outbound_has_room(s) && !outbound_is_over(s)) {
			s->blocked = true;
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
	while (s->streams > 0 && take(s) == BATCH)
		;
}

void outbound_end(uint16_t port)
{
	struct sctp_socket *s;

	for (s = sockets_first(); s != NULL; s = s->next)
		if (s->port == port && s->streams > 0) {
			s->ends = true;
			socket_tell_state(s); /* before it is looked what lies there */
			outbound_take_all(s);
			expiry_pass_all(s);
			socket_look(s);
		}
}
