#include "options.h"

#include <errno.h>
#include <string.h>

#include "calls.h"
#include "outbound.h"
#include "stack.h"
#include "translate.h"
#include "usrsctp_internal.h"

#define LEAST_BUFFER 4096 /* usrsctp's; what programs are told is Linux's: */
#define LEAST_SEND_BUFFER 4608
#define LEAST_RECEIVE_BUFFER 2304

static const struct { /* Linux's event 0x8000 + i to usrsctp's; 0: none */
	uint16_t type;
} event_types[LX_EVENT_COUNT] = {
	[1] = { SCTP_ASSOC_CHANGE },	       [2] = { SCTP_PEER_ADDR_CHANGE },	 [3] = { SCTP_SEND_FAILED_EVENT },
	[4] = { SCTP_REMOTE_ERROR },	       [5] = { SCTP_SHUTDOWN_EVENT },	 [6] = { SCTP_PARTIAL_DELIVERY_EVENT },
	[7] = { SCTP_ADAPTATION_INDICATION },  [9] = { SCTP_SENDER_DRY_EVENT },	 [10] = { SCTP_STREAM_RESET_EVENT },
	[11] = { SCTP_ASSOC_RESET_EVENT },     [12] = { SCTP_STREAM_CHANGE_EVENT }, [13] = { SCTP_SEND_FAILED_EVENT },
};

static void apply_event(struct sctp_socket *s, int which)
{
	struct sctp_event event = { .se_assoc_id = SCTP_ALL_ASSOC, .se_type = event_types[which].type };
	int i;

	if (event.se_type == 0)
		return;
	event.se_on = event.se_type == SCTP_ASSOC_CHANGE; /* the daemon itself needs those */
	for (i = 1; i < LX_EVENT_COUNT; i++)
		event.se_on |= event_types[i].type == event.se_type && s->events[i];
	usrsctp_setsockopt(s->so, IPPROTO_SCTP, SCTP_EVENT, &event, sizeof(event));
}

static uint16_t more_of(uint16_t first, int second)
{
	return second > UINT16_MAX ? UINT16_MAX : second > first ? (uint16_t)second : first;
}

/* Return 0 or an errno. What counts packets believes s->v6only: it is never other than what usrsctp does. */
static int apply_v6only(struct sctp_socket *s, bool on)
{
	struct endpoint *endpoint = s->so->protocol_block;

	if (endpoint == NULL || endpoint->socket != s->so)
		return ENOPROTOOPT;
	endpoint->flags = on ? endpoint->flags | ENDPOINT_V6ONLY : endpoint->flags & ~ENDPOINT_V6ONLY;
	s->v6only = on;
	return 0;
}

static int set_v6only(struct sctp_socket *s, const char *value, size_t length)
{
	int number;

	if (s->domain != AF_INET6)
		return ENOPROTOOPT;
	call_note_port(s);
	if (length < sizeof(number) || s->port != 0) /* as in Linux, not once it is bound */
		return EINVAL;
	memcpy(&number, value, sizeof(number));
	return apply_v6only(s, number != 0);
}

void options_prepare(struct sctp_socket *s)
{
	int i, on = 1;

	if (s->v6only && apply_v6only(s, true) != 0)
		s->v6only = false;
	if (s->domain == AF_INET6) /* as in Linux: IPv4 peers appear as ::ffff:a.b.c.d */
		usrsctp_setsockopt(s->so, IPPROTO_SCTP, SCTP_I_WANT_MAPPED_V4_ADDR, &on, sizeof(on));
	usrsctp_setsockopt(s->so, IPPROTO_SCTP, SCTP_RECVRCVINFO, &on, sizeof(on));
	for (i = 1; i < LX_EVENT_COUNT; i++)
		apply_event(s, i);
	if (s->send_buffer == 0)
		s->send_buffer = s->receive_buffer = 212992;
	s->out_streams = more_of(s->out_streams, OUT_STREAMS);
}

static int set_events(struct sctp_socket *s, const char *value, size_t length)
{
	int i;

	if (length > LX_EVENT_COUNT)
		return EINVAL;
	memcpy(s->events, value, length);
	for (i = 1; i < LX_EVENT_COUNT; i++)
		apply_event(s, i);
	return 0;
}

static int set_event(struct sctp_socket *s, const char *value, size_t length)
{
	struct lx_event event;

	if (length < sizeof(event))
		return EINVAL;
	memcpy(&event, value, sizeof(event));
	if (event.type < 0x8001 || event.type >= 0x8000 + LX_EVENT_COUNT)
		return EINVAL;
	s->events[event.type - 0x8000] = event.on != 0;
	apply_event(s, event.type - 0x8000);
	return 0;
}

static int set_socket_level(struct sctp_socket *s, int option, const char *value, size_t length)
{
	int number = 0;

	if (option == SO_LINGER)
		return usrsctp_setsockopt(s->so, SOL_SOCKET, option, value, (socklen_t)length) < 0 ? errno : 0;
	if (option != SO_SNDBUF && option != SO_RCVBUF)
		return ENOPROTOOPT;
	if (length < sizeof(number))
		return EINVAL;
	memcpy(&number, value, sizeof(number));
	number = number < 0 || number > 4 * MESSAGE_MAX ? 4 * MESSAGE_MAX : number; /* below 0: as Linux, the most there is */
	if (option == SO_SNDBUF)
		s->send_buffer = number * 2 > LEAST_SEND_BUFFER ? number * 2 : LEAST_SEND_BUFFER;
	else
		s->receive_buffer = number * 2 > LEAST_RECEIVE_BUFFER ? number * 2 : LEAST_RECEIVE_BUFFER;
	if (number < LEAST_BUFFER)
		number = LEAST_BUFFER;
	if (usrsctp_setsockopt(s->so, SOL_SOCKET, option, &number, sizeof(number)) < 0)
		return errno;
	if (option == SO_SNDBUF)
		outbound_note_room(s);
	return 0;
}

/* What is kept for an association grows with its streams. */
static void note_streams(struct sctp_socket *s, int option, const char *value, size_t length)
{
	struct sctp_initmsg initial;

	if (option == LX_INITMSG && length >= sizeof(initial)) {
		memcpy(&initial, value, sizeof(initial));
		s->out_streams = more_of(s->out_streams, initial.sinit_num_ostreams);
		s->in_streams = more_of(s->in_streams, initial.sinit_max_instreams);
	}
}

static int set_flag(bool *flag, const char *value, size_t length)
{
	int number;

	if (length < sizeof(number))
		return EINVAL;
	memcpy(&number, value, sizeof(number));
	*flag = number != 0;
	return 0;
}

int options_set(struct sctp_socket *s, int level, int option, const char *value, size_t length)
{
	if (level == SOL_SOCKET)
		return set_socket_level(s, option, value, length);
	if (level == IPPROTO_IPV6 && option == IPV6_V6ONLY)
		return set_v6only(s, value, length);
	if (level == IPPROTO_IP || level == IPPROTO_IPV6)
		return 0; /* TOS, traffic class and the like: accepted, without effect */
	if (level != IPPROTO_SCTP)
		return ENOPROTOOPT;
	switch (option) {
	case LX_EVENTS:
		return set_events(s, value, length);
	case LX_EVENT:
		return set_event(s, value, length);
	case LX_RECVRCVINFO:
		return set_flag(&s->wants_rcvinfo, value, length);
	case LX_RECVNXTINFO:
		return set_flag(&s->wants_nxtinfo, value, length); /* without effect */
	case LX_AUTOCLOSE:
		if (IS_ONE_TO_ONE(s))
			return EOPNOTSUPP;
		return translate_set(s, option, value, length);
	case LX_DISABLE_FRAGMENTS: /* then a message may be too long */
		s->calls_only = true;
		s->streams = 0;
		return translate_set(s, option, value, length);
	default:
		note_streams(s, option, value, length);
		return translate_set(s, option, value, length);
	}
}

static int get_number(char *value, size_t *length, int number)
{
	if (*length < sizeof(number))
		return EINVAL;
	*length = sizeof(number);
	memcpy(value, &number, sizeof(number));
	return 0;
}

static int get_socket_level(struct sctp_socket *s, int option, char *value, size_t *length)
{
	int error;
	socklen_t room = (socklen_t)*length;

	switch (option) {
	case SO_ERROR:
		error = s->error;
		s->error = 0;
		return get_number(value, length, error);
	case SO_TYPE:
		return get_number(value, length, s->type);
	case SO_DOMAIN:
		return get_number(value, length, s->domain);
	case SO_PROTOCOL:
		return get_number(value, length, IPPROTO_SCTP);
	case SO_ACCEPTCONN:
		return get_number(value, length, s->state == SOCKET_LISTENS);
	case SO_SNDBUF:
		return get_number(value, length, s->send_buffer);
	case SO_RCVBUF:
		return get_number(value, length, s->receive_buffer);
	case SO_LINGER:
		if (usrsctp_getsockopt(s->so, SOL_SOCKET, option, value, &room) < 0)
			return errno;
		*length = room;
		return 0;
	default:
		return ENOPROTOOPT;
	}
}

static int get_event(const struct sctp_socket *s, char *value, size_t *length)
{
	struct lx_event event;

	if (*length < sizeof(event))
		return EINVAL;
	memcpy(&event, value, sizeof(event));
	if (event.type < 0x8001 || event.type >= 0x8000 + LX_EVENT_COUNT)
		return EINVAL;
	event.on = s->events[event.type - 0x8000] != 0;
	memcpy(value, &event, sizeof(event));
	*length = sizeof(event);
	return 0;
}

int options_get(struct sctp_socket *s, int level, int option, char *value, size_t *length)
{
	if (level == SOL_SOCKET)
		return get_socket_level(s, option, value, length);
	if (level == IPPROTO_IPV6 && option == IPV6_V6ONLY)
		return get_number(value, length, s->v6only);
	if (level == IPPROTO_IP || level == IPPROTO_IPV6)
		return get_number(value, length, 0);
	if (level != IPPROTO_SCTP)
		return ENOPROTOOPT;
	switch (option) {
	case LX_EVENTS:
		if (*length > LX_EVENT_COUNT)
			*length = LX_EVENT_COUNT;
		memcpy(value, s->events, *length);
		return 0;
	case LX_EVENT:
		return get_event(s, value, length);
	case LX_RECVRCVINFO:
		return get_number(value, length, s->wants_rcvinfo);
	case LX_AUTOCLOSE:
		return IS_ONE_TO_ONE(s) ? EOPNOTSUPP : translate_get(s, option, value, length);
	case LX_RECVNXTINFO:
		return get_number(value, length, s->wants_nxtinfo);
	default:
		return translate_get(s, option, value, length);
	}
}
