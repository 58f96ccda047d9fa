#include <errno.h>
#include <string.h>

#include "bound.h"
#include "deliver.h"
#include "inbound.h"
#include "interfaces.h"
#include "notifications.h"
#include "outbound.h"
#include "paths.h"
#include "shim.h"
#include "sockets.h"
#include "usrsctp_internal.h"

#define PER_TURN 64 /* messages of one socket before the others have their turn */

static char bytes[MESSAGE_MAX + 1024], translated[MESSAGE_MAX + 1024];

static void connect_ended(struct sctp_socket *s, int error)
{
	s->connecting_association = 0;
	s->error = error;
	if (IS_ONE_TO_ONE(s))
		socket_enter(s, error == 0 ? SOCKET_CONNECTED : SOCKET_FAILED);
	if (error == 0)
		socket_note_peer(s);
	shim_connect_ended(s, error);
}

/* The facts that the daemon itself learns from a notification, subscribed or not. */
static void learn(struct sctp_socket *s, const char *from, size_t length)
{
	struct sctp_assoc_change change;

	shim_learn(s, from, length);
	if (length < sizeof(change))
		return;
	memcpy(&change, from, sizeof(change));
	if (change.sac_type != SCTP_ASSOC_CHANGE)
		return;
	if (change.sac_state == SCTP_COMM_UP || change.sac_state == SCTP_RESTART)
		paths_begin(s, change.sac_assoc_id);
	if (change.sac_state == SCTP_COMM_LOST || change.sac_state == SCTP_SHUTDOWN_COMP || change.sac_state == SCTP_RESTART)
		outbound_change_way(s);
	if (!socket_is_connecting(s))
		return;
	if (!IS_ONE_TO_ONE(s) && change.sac_assoc_id != s->connecting_association)
		return;
	if (change.sac_state == SCTP_COMM_UP || change.sac_state == SCTP_RESTART)
		connect_ended(s, 0);
	else if (!IS_ONE_TO_ONE(s)) /* an ABORT chunk from the peer is attached */
		connect_ended(s, length > sizeof(change) ? ECONNREFUSED : ETIMEDOUT);
}

void socket_note_error(struct sctp_socket *s)
{
	if (!IS_ONE_TO_ONE(s) || !socket_means(s)->had_connection || s->error_noted || s->so->error == 0)
		return;
	s->error = s->so->error;
	s->error_noted = true;
	socket_tell_state(s);
}

static void push_news(struct sctp_socket *s, enum inbound_type type)
{
	struct inbound header = { .type = (uint16_t)type, .flags = INBOUND_EOR };

	socket_push(s, &header, NULL, 0);
}

/* Everything was received: the last thing the client sees, once there is room. */
static void finish(struct sctp_socket *s)
{
	if (s->unsent == NULL && !s->end_told) {
		s->end_told = true;
		socket_tell_state(s); /* before the program learns of it */
		if (!socket_means(s)->hangs_up)
			push_news(s, INBOUND_OVER);
	}
	if (s->unsent == NULL && socket_means(s)->hangs_up && !shim_resets(s))
		shutdown(s->watch.fd, SHUT_WR);
}

/* The association of a one-to-one socket is over. */
static void ended(struct sctp_socket *s, int error)
{
	if (s->state == SOCKET_CONNECTING) {
		connect_ended(s, error == ETIMEDOUT ? error : ECONNREFUSED);
		push_news(s, INBOUND_ERROR);
		return;
	}
	if (s->state != SOCKET_CONNECTED && s->state != SOCKET_WRITE_SHUT)
		return;
	/* Linux: end-of-file where the peer ended it, no connection any more where this side or an ABORT did. */
	socket_enter(s, error != 0 ? SOCKET_BROKEN : s->state == SOCKET_WRITE_SHUT ? SOCKET_FINISHED : SOCKET_ENDED);
	if (error != 0) {
		s->error = s->error_noted ? s->error : error;
		s->error_noted = true;
		push_news(s, INBOUND_ERROR);
	}
	finish(s);
}

void socket_receives_no_more(struct sctp_socket *s)
{
	socket_enter(s, SOCKET_READ_SHUT);
	finish(s);
}

/* A client that asks is told at the start that this association authenticates nothing: nothing here does. */
static bool push_no_authentication(struct sctp_socket *s, uint32_t association)
{
	const struct lx_authkey_event event = { .auth_type = LX_AUTHENTICATION_EVENT, .auth_length = sizeof(event),
						.auth_indication = LX_AUTH_NO_AUTH, .auth_assoc_id = association };
	struct inbound header = { .type = INBOUND_NOTIFICATION, .flags = INBOUND_EOR, .association = association };

	return socket_push(s, &header, (const char *)&event, sizeof(event));
}

static bool is_beginning(const char *notification, size_t length)
{
	struct sctp_assoc_change change;

	if (length < sizeof(change))
		return false;
	memcpy(&change, notification, sizeof(change));
	return change.sac_type == SCTP_ASSOC_CHANGE && change.sac_state == SCTP_COMM_UP;
}

/* The next message that usrsctp has, or a look at it. *flags: MSG_PEEK or 0, then usrsctp's. Return its length in `bytes`, or -1 and errno, or 0. */
static ssize_t take_message(struct sctp_socket *s, struct inbound *header, int *flags)
{
	struct sctp_rcvinfo info = { 0 };
	socklen_t from_length = sizeof(header->from), info_length = sizeof(info);
	unsigned int info_type = SCTP_RECVV_NOINFO;
	ssize_t length;

	*header = (struct inbound){ .type = INBOUND_DATA };
	length = usrsctp_recvv(s->so, bytes, MESSAGE_MAX, (struct sockaddr *)&header->from, &from_length, &info, &info_length, &info_type,
			       flags);
	header->from_length = (uint16_t)address_length((struct sockaddr *)&header->from);
	header->flags = *flags & MSG_EOR ? INBOUND_EOR : 0;
	header->stream = info.rcv_sid;
	header->ssn = info.rcv_ssn;
	header->sinfo_flags = info.rcv_flags & SCTP_UNORDERED ? LX_UNORDERED : 0;
	header->ppid = info.rcv_ppid;
	header->tsn = info.rcv_tsn;
	header->cumulative_tsn = info.rcv_cumtsn;
	header->context = info.rcv_context;
	header->association = info.rcv_assoc_id;
	return length;
}

/* Whether the next message is data that has to wait until a client asks for it. The outcome of a connect() may be behind it. */
static bool has_to_wait(struct sctp_socket *s)
{
	struct inbound header;
	int flags = MSG_PEEK;

	return s->waits_for_asking && socket_means(s)->receives && !socket_is_connecting(s) && take_message(s, &header, &flags) > 0 &&
	       !(flags & MSG_NOTIFICATION);
}

/* A client that ended may have taken what tells of it. */
static void tell_to_ask(struct sctp_socket *s)
{
	if (s->telling_doubted && s->unsent == NULL && inbound_all_read(s))
		s->telling_doubted = s->asking_told = false;
	if (!s->asking_told)
		push_news(s, INBOUND_ASK);
	s->asking_told = true;
}

size_t socket_fetch(struct sctp_socket *s, char *to, bool stays)
{
	struct inbound header;
	int flags = stays ? MSG_PEEK : 0;
	ssize_t length;

	if (!stays)
		s->asking_told = false;
	if (!has_to_wait(s))
		return 0;
	length = take_message(s, &header, &flags);
	if (length <= 0)
		return 0;
	memcpy(to, &header, sizeof(header));
	memcpy(to + sizeof(header), bytes, (size_t)length);
	return sizeof(header) + (size_t)length;
}

bool socket_deliver(struct sctp_socket *s)
{
	int turn, events = 0;

	if (!socket_means(s)->receives && s->state != SOCKET_CLOSING)
		finish(s);
	for (turn = 0; turn < PER_TURN; turn++) {
		struct inbound header;
		int flags = 0;
		ssize_t length, received;
		bool may_go_on;

		events = usrsctp_get_events(s->so);
		if (s->state == SOCKET_CONNECTING && events & SCTP_EVENT_WRITE && !(events & SCTP_EVENT_ERROR))
			connect_ended(s, 0);
		if (!(socket_means(s)->receives || socket_means(s)->discards) || !(events & (SCTP_EVENT_READ | SCTP_EVENT_ERROR)))
			return true;
		if (has_to_wait(s)) {
			tell_to_ask(s);
			return true;
		}
		length = received = take_message(s, &header, &flags);
		if (length < 0 && (errno == EAGAIN || errno == ENOTCONN))
			return true;
		if (length <= 0) {
			if (IS_ONE_TO_ONE(s))
				ended(s, length < 0 ? errno : 0);
			return true;
		}
		if (flags & MSG_NOTIFICATION)
			learn(s, bytes, (size_t)length);
		else if (shim_is_end(s, &header))
			header.type = INBOUND_OVER;
		if (socket_means(s)->discards)
			continue;
		if (flags & MSG_NOTIFICATION) {
			length = (ssize_t)notification_translate(s, bytes, (size_t)length, translated, sizeof(translated));
			if (length == 0) /* not asked for */
				continue;
			header = (struct inbound){ .type = INBOUND_NOTIFICATION, .flags = INBOUND_EOR, .from = header.from,
						   .from_length = header.from_length,
						   .association = notification_association(bytes, (size_t)received) };
		}
		may_go_on = socket_push(s, &header, flags & MSG_NOTIFICATION ? translated : bytes, (size_t)length);
		if (header.type == INBOUND_NOTIFICATION && s->events[LX_AUTHENTICATION_EVENT - 0x8000] &&
		    is_beginning(bytes, (size_t)received))
			may_go_on = push_no_authentication(s, header.association);
		if (!may_go_on)
			return true; /* goes on when the descriptor has room */
	}
	return false;
}
