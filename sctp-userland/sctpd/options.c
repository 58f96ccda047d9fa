/* Each option that a program may set or get is a row of the table at the end: where layouts and numbers agree with usrsctp's, its number there is all. */
#include "options.h"

#include <errno.h>
#include <string.h>

#include "bound.h"
#include "notifications.h"
#include "shim.h"
#include "translate.h"
#include "usrsctp_internal.h"

#define LEAST_BUFFER 4096 /* usrsctp's; what programs are told is Linux's: */
#define LEAST_SEND_BUFFER 4608
#define LEAST_RECEIVE_BUFFER 2304
#define SMALL_RECEIVE_BUFFER 16384 /* below it data waits in usrsctp */
#define LONGEST_SACK_DELAY_MS 500
#define USUAL_SACK_FREQUENCY 2 /* packets (RFC 9260 section 6.2) */
#define SMALLEST_PATH_MTU 512

/* A value in the program's layout; zeros follow what it gave. */
union value {
	int32_t number;
	uint32_t association; /* with which most begin */
	char bytes[OPTION_MAX];
	struct linger linger;
	struct sctp_assoc_value of_association;
	struct sctp_rtoinfo timeouts;
	struct sctp_sack_info sack;
	struct lx_assocparams parameters;
	struct lx_event event;
	struct lx_paddrinfo path;
	struct lx_paddrparams path_parameters;
	struct lx_prim primary;
	struct lx_sndinfo sndinfo;
	struct lx_sndrcvinfo sndrcvinfo;
	struct lx_status status;
};

struct row {
	int level, name;
	int usrsctp;  /* its number there, 0: none */
	size_t set_least, get_least; /* bytes that a program must give, or have room for, else EINVAL */
	/* Both return 0 or an errno. get: *length is the room, then the length of the result. NULL: as usrsctp has it. */
	int (*set)(struct sctp_socket *s, const struct row *row, union value *value, size_t length);
	int (*get)(struct sctp_socket *s, const struct row *row, union value *value, size_t *length);
	size_t at; /* where in the socket, for set_flag(), get_flag() and get_kept() */
	bool is_of_many; /* a one-to-one socket has none: EOPNOTSUPP */
};

static int set_there(struct sctp_socket *s, int option, const void *value, size_t length)
{
	if (usrsctp_setsockopt(s->so, IPPROTO_SCTP, option, value, (socklen_t)length) >= 0)
		return 0;
	return errno == ENOENT ? EINVAL : errno; /* as Linux says of an association that there isn't */
}

static int get_there(struct sctp_socket *s, int option, void *value, size_t *length)
{
	socklen_t room = (socklen_t)*length;

	if (usrsctp_getsockopt(s->so, IPPROTO_SCTP, option, value, &room) < 0)
		return errno == ENOENT ? EINVAL : errno;
	*length = room;
	return 0;
}

#define GET_THERE(s, option, structure) get_there(s, option, &(structure), &(size_t){ sizeof(structure) })

/* Events. */

static void apply_event(struct sctp_socket *s, int which)
{
	struct sctp_event event = { .se_assoc_id = SCTP_ALL_ASSOC, .se_type = notification_types[which] };
	int i;

	if (event.se_type == 0)
		return;
	event.se_on = event.se_type == SCTP_ASSOC_CHANGE; /* the daemon itself needs those */
	for (i = 1; i < LX_EVENT_COUNT; i++)
		event.se_on |= notification_types[i] == event.se_type && s->events[i];
	usrsctp_setsockopt(s->so, IPPROTO_SCTP, SCTP_EVENT, &event, sizeof(event));
}

static int set_events(struct sctp_socket *s, const struct row *, union value *value, size_t length)
{
	int i;

	if (length > LX_EVENT_COUNT)
		return EINVAL;
	memcpy(s->events, value->bytes, length);
	for (i = 1; i < LX_EVENT_COUNT; i++)
		apply_event(s, i);
	return 0;
}

static int get_events(struct sctp_socket *s, const struct row *, union value *value, size_t *length)
{
	memcpy(value->bytes, s->events, LX_EVENT_COUNT);
	*length = LX_EVENT_COUNT;
	return 0;
}

static bool is_event(const union value *value)
{
	return value->event.se_type > 0x8000 && value->event.se_type < 0x8000 + LX_EVENT_COUNT;
}

static int set_event(struct sctp_socket *s, const struct row *, union value *value, size_t)
{
	if (!is_event(value))
		return EINVAL;
	s->events[value->event.se_type - 0x8000] = value->event.se_on != 0;
	apply_event(s, value->event.se_type - 0x8000);
	return 0;
}

static int get_event(struct sctp_socket *s, const struct row *, union value *value, size_t *length)
{
	if (!is_event(value))
		return EINVAL;
	value->event.se_on = s->events[value->event.se_type - 0x8000] != 0;
	*length = sizeof(value->event);
	return 0;
}

/* Numbers that are kept here. */

static int set_flag(struct sctp_socket *s, const struct row *row, union value *value, size_t)
{
	*(bool *)((char *)s + row->at) = value->number != 0;
	return 0;
}

static int get_flag(struct sctp_socket *s, const struct row *row, union value *value, size_t *length)
{
	*length = sizeof(value->number);
	value->number = *(const bool *)((const char *)s + row->at);
	return 0;
}

static int get_kept(struct sctp_socket *s, const struct row *row, union value *value, size_t *length)
{
	*length = sizeof(value->number);
	value->number = *(const int *)((const char *)s + row->at);
	return 0;
}

static int get_number(struct sctp_socket *s, const struct row *row, union value *value, size_t *length)
{
	*length = sizeof(value->number);
	value->number = row->name == SO_ERROR ? s->error : row->name == SO_PROTOCOL ? IPPROTO_SCTP : s->state == SOCKET_LISTENS;
	if (row->name == SO_ERROR)
		s->error = 0;
	return 0;
}

static int set_buffer(struct sctp_socket *s, const struct row *row, union value *value, size_t)
{
	const int most = 4 * MESSAGE_MAX, asked = value->number < 0 || value->number > most ? most : value->number; /* below 0: as Linux, the most */
	const int number = asked < LEAST_BUFFER ? LEAST_BUFFER : asked;

	if (row->name == SO_SNDBUF)
		s->send_buffer = asked * 2 > LEAST_SEND_BUFFER ? asked * 2 : LEAST_SEND_BUFFER;
	else
		s->receive_buffer = asked * 2 > LEAST_RECEIVE_BUFFER ? asked * 2 : LEAST_RECEIVE_BUFFER;
	if (row->name == SO_RCVBUF)
		s->waits_for_asking = asked < SMALL_RECEIVE_BUFFER;
	return usrsctp_setsockopt(s->so, SOL_SOCKET, row->name, &number, sizeof(number)) < 0 ? errno : 0;
}

static int set_linger(struct sctp_socket *s, const struct row *row, union value *value, size_t length)
{
	return usrsctp_setsockopt(s->so, SOL_SOCKET, row->name, value, (socklen_t)length) < 0 ? errno : 0;
}

static int get_linger(struct sctp_socket *s, const struct row *row, union value *value, size_t *length)
{
	socklen_t room = sizeof(value->linger);

	*length = sizeof(value->linger);
	return usrsctp_getsockopt(s->so, SOL_SOCKET, row->name, value, &room) < 0 ? errno : 0;
}

static int set_nothing(struct sctp_socket *, const struct row *, union value *, size_t)
{
	return 0;
}

static int get_nothing(struct sctp_socket *, const struct row *, union value *value, size_t *length)
{
	value->number = 0;
	*length = sizeof(value->number);
	return 0;
}

/* Return 0 or an errno. The code that counts packets believes s->v6only: it is never other than what usrsctp does. */
static int apply_v6only(struct sctp_socket *s, bool on)
{
	struct endpoint *endpoint = s->so->protocol_block;

	if (endpoint == NULL || endpoint->socket != s->so)
		return ENOPROTOOPT;
	endpoint->flags = on ? endpoint->flags | ENDPOINT_V6ONLY : endpoint->flags & ~ENDPOINT_V6ONLY;
	s->v6only = on;
	return 0;
}

static int set_v6only(struct sctp_socket *s, const struct row *, union value *value, size_t length)
{
	if (s->domain != AF_INET6)
		return ENOPROTOOPT;
	socket_note_port(s);
	if (length < sizeof(value->number) || s->port != 0) /* as in Linux, not once it is bound */
		return EINVAL;
	return apply_v6only(s, value->number != 0);
}

/* Options that usrsctp has otherwise. */

static int set_disable_fragments(struct sctp_socket *s, const struct row *row, union value *value, size_t length)
{
	s->calls_only = true; /* then a message may be too long */
	return set_there(s, row->usrsctp, value, length);
}

/* Linux lets 0 stand for "as it is" and doesn't ask that the initial timeout lie between the others; usrsctp does. */
static int set_timeouts(struct sctp_socket *s, const struct row *row, union value *value, size_t)
{
	struct sctp_rtoinfo *to = &value->timeouts, now = { .srto_assoc_id = to->srto_assoc_id };

	if (GET_THERE(s, row->usrsctp, now) != 0)
		return EINVAL;
	to->srto_min = to->srto_min != 0 ? to->srto_min : now.srto_min;
	to->srto_max = to->srto_max != 0 ? to->srto_max : now.srto_max;
	to->srto_initial = to->srto_initial != 0 ? to->srto_initial : now.srto_initial;
	if (to->srto_min > to->srto_max)
		return EINVAL;
	if (to->srto_initial < to->srto_min)
		to->srto_initial = to->srto_min;
	if (to->srto_initial > to->srto_max)
		to->srto_initial = to->srto_max;
	return set_there(s, row->usrsctp, to, sizeof(*to));
}

static int set_association_parameters(struct sctp_socket *s, const struct row *row, union value *value, size_t length)
{
	const struct lx_assocparams *from = &value->parameters;
	const struct sctp_assocparams to = { .sasoc_assoc_id = from->sasoc_assoc_id, .sasoc_asocmaxrxt = from->sasoc_asocmaxrxt,
					     .sasoc_cookie_life = from->sasoc_cookie_life };

	(void)length;
	return set_there(s, row->usrsctp, &to, sizeof(to));
}

static int get_association_parameters(struct sctp_socket *s, const struct row *row, union value *value, size_t *length)
{
	struct sctp_assocparams from = { .sasoc_assoc_id = value->association };
	int error = GET_THERE(s, row->usrsctp, from);

	value->parameters = (struct lx_assocparams){ from.sasoc_assoc_id, from.sasoc_asocmaxrxt, from.sasoc_number_peer_destinations,
						     from.sasoc_peer_rwnd, from.sasoc_local_rwnd, from.sasoc_cookie_life };
	*length = sizeof(value->parameters);
	return error;
}

/* A wildcard, or none at all. */
static bool is_any(const struct sockaddr_storage *address)
{
	const bool is_known = address_length((const struct sockaddr *)address) > 0;

	return is_known ? address_is_any((const struct sockaddr *)address) : address->ss_family == AF_UNSPEC;
}

static bool is_of_no_peer(struct sctp_socket *s, struct sockaddr_storage address)
{
	return !is_any(&address) && (address_length((struct sockaddr *)&address) == 0 || usrsctp_getassocid(s->so, (struct sockaddr *)&address) == 0);
}

static bool has_no_association(const struct sctp_socket *s, uint32_t association)
{
	struct lx_status status;

	return IS_ONE_TO_ONE(s) ? translate_status(s, 0, &status) != 0 : association == 0;
}

static bool is_both(uint32_t flags, uint32_t both)
{
	return (flags & both) == both;
}

/* Values that Linux refuses; usrsctp takes some of them. */
static bool is_wrong(struct sctp_socket *s, const struct lx_paddrparams *from)
{
	const struct sockaddr_storage address = from->spp_address;

	return is_both(from->spp_flags, SPP_HB_ENABLE | SPP_HB_DISABLE) || is_both(from->spp_flags, SPP_PMTUD_ENABLE | SPP_PMTUD_DISABLE) ||
	       is_both(from->spp_flags, LX_SPP_SACKDELAY_ENABLE | LX_SPP_SACKDELAY_DISABLE) || from->spp_sackdelay > LONGEST_SACK_DELAY_MS ||
	       (from->spp_pathmtu != 0 && from->spp_pathmtu < SMALLEST_PATH_MTU) || is_of_no_peer(s, address) ||
	       (from->spp_flags & SPP_HB_DEMAND && is_any(&address) && has_no_association(s, from->spp_assoc_id));
}

/* Delayed acknowledgements. usrsctp turns them off by a frequency of one; Linux keeps beside that what holds when they are on. */

static bool sack_is_off(const struct sctp_sack_info *sack)
{
	return sack->sack_freq == 1;
}

static int set_sack(struct sctp_socket *s, struct sctp_sack_info to)
{
	struct sctp_sack_info now = { .sack_assoc_id = to.sack_assoc_id };

	if (to.sack_delay == 0 && to.sack_freq == 0)
		return 0;
	if (to.sack_freq == 0 && GET_THERE(s, SCTP_DELAYED_SACK, now) == 0 && sack_is_off(&now))
		to.sack_freq = USUAL_SACK_FREQUENCY; /* on again */
	return set_there(s, SCTP_DELAYED_SACK, &to, sizeof(to));
}

/* usrsctp's form of the association and the path that are meant: it refuses an address without family, 0.0.0.0 are all paths. */
static struct sctp_paddrparams named_path(const struct lx_paddrparams *from)
{
	const struct sockaddr_storage address = from->spp_address;
	struct sctp_paddrparams to = { .spp_assoc_id = from->spp_assoc_id, .spp_address.ss_family = AF_INET };

	if (!is_any(&address))
		to.spp_address = address;
	return to;
}

static int set_path_parameters(struct sctp_socket *s, const struct row *row, union value *value, size_t)
{
	const struct lx_paddrparams *from = &value->path_parameters;
	struct sctp_paddrparams to = named_path(from);

	if (is_wrong(s, from))
		return EINVAL;
	to.spp_hbinterval = from->spp_hbinterval;
	to.spp_pathmaxrxt = from->spp_pathmaxrxt;
	to.spp_pathmtu = from->spp_pathmtu;
	to.spp_flags = from->spp_flags & (SPP_HB_ENABLE | SPP_HB_DISABLE | SPP_HB_DEMAND | SPP_PMTUD_ENABLE | SPP_PMTUD_DISABLE |
				      SPP_HB_TIME_IS_ZERO);
	if (to.spp_hbinterval != 0 && !(to.spp_flags & (SPP_HB_ENABLE | SPP_HB_DISABLE)))
		to.spp_hbinterval = 0;
	if (from->spp_flags & (LX_SPP_SACKDELAY_ENABLE | LX_SPP_SACKDELAY_DISABLE)) {
		struct sctp_sack_info now = { .sack_assoc_id = from->spp_assoc_id };

		GET_THERE(s, SCTP_DELAYED_SACK, now);
		now.sack_delay = from->spp_sackdelay != 0 ? from->spp_sackdelay : now.sack_delay;
		now.sack_freq = from->spp_flags & LX_SPP_SACKDELAY_DISABLE ? 1 : 0;
		set_sack(s, now);
	}
	return set_there(s, row->usrsctp, &to, sizeof(to));
}

static int get_path_parameters(struct sctp_socket *s, const struct row *row, union value *value, size_t *length)
{
	struct lx_paddrparams *to = &value->path_parameters;
	struct sctp_paddrparams from = named_path(to);
	struct sctp_sack_info sack = { .sack_assoc_id = to->spp_assoc_id };
	int error = GET_THERE(s, row->usrsctp, from);

	GET_THERE(s, SCTP_DELAYED_SACK, sack);
	to->spp_hbinterval = from.spp_hbinterval;
	to->spp_pathmaxrxt = from.spp_pathmaxrxt;
	to->spp_pathmtu = from.spp_pathmtu;
	to->spp_sackdelay = sack.sack_delay;
	to->spp_flags = (from.spp_flags & 0x1f) | (sack_is_off(&sack) ? LX_SPP_SACKDELAY_DISABLE : LX_SPP_SACKDELAY_ENABLE);
	*length = sizeof(*to);
	return error;
}

static int get_path(struct sctp_socket *s, const struct row *row, union value *value, size_t *length)
{
	struct sctp_paddrinfo from = { .spinfo_assoc_id = value->path.spinfo_assoc_id, .spinfo_address = value->path.spinfo_address };

	if (is_of_no_peer(s, from.spinfo_address) || GET_THERE(s, row->usrsctp, from) != 0)
		return EINVAL;
	value->path = translate_path(&from);
	*length = sizeof(value->path);
	return 0;
}

static int get_status(struct sctp_socket *s, const struct row *, union value *value, size_t *length)
{
	*length = sizeof(value->status);
	return translate_status(s, value->association, &value->status);
}

static int set_default_send(struct sctp_socket *s, const struct row *row, union value *value, size_t)
{
	const struct lx_sndinfo *from = &value->sndinfo;
	const struct sctp_sndinfo to = { from->snd_sid, from->snd_flags & LX_UNORDERED ? SCTP_UNORDERED : 0, from->snd_ppid, from->snd_context, from->snd_assoc_id };

	if (from->snd_flags & ~(LX_UNORDERED | LX_ADDR_OVER | LX_ABORT | LX_EOF))
		return EINVAL;
	return set_there(s, row->usrsctp, &to, sizeof(to));
}

static int get_default_send(struct sctp_socket *s, const struct row *row, union value *value, size_t *length)
{
	struct lx_sndinfo *to = &value->sndinfo;
	struct sctp_sndinfo from = { .snd_assoc_id = to->snd_assoc_id };
	int error = GET_THERE(s, row->usrsctp, from);

	*to = (struct lx_sndinfo){ from.snd_sid, from.snd_flags & SCTP_UNORDERED ? LX_UNORDERED : 0, from.snd_ppid, from.snd_context,
				   to->snd_assoc_id };
	*length = sizeof(*to);
	return error;
}

/* The older form of the same. */
static int set_old_default_send(struct sctp_socket *s, const struct row *row, union value *value, size_t length)
{
	const struct lx_sndrcvinfo from = value->sndrcvinfo;
	const uint32_t lifetime_ms = from.sinfo_timetolive;
	const struct sctp_default_prinfo lifetime = { lifetime_ms > 0 ? SCTP_PR_SCTP_TTL : SCTP_PR_SCTP_NONE, lifetime_ms, from.sinfo_assoc_id };
	int error;

	value->sndinfo = (struct lx_sndinfo){ from.sinfo_stream, from.sinfo_flags, from.sinfo_ppid, from.sinfo_context, from.sinfo_assoc_id };
	error = set_default_send(s, row, value, length);
	s->has_lifetime |= error == 0 && lifetime_ms > 0;
	return error == 0 ? set_there(s, SCTP_DEFAULT_PRINFO, &lifetime, sizeof(lifetime)) : error;
}

static int get_old_default_send(struct sctp_socket *s, const struct row *row, union value *value, size_t *length)
{
	union value newer = { .sndinfo.snd_assoc_id = value->sndrcvinfo.sinfo_assoc_id };
	const struct lx_sndinfo *from = &newer.sndinfo;
	struct sctp_default_prinfo lifetime = { .pr_assoc_id = from->snd_assoc_id };
	int error = get_default_send(s, row, &newer, length);

	value->sndrcvinfo.sinfo_stream = from->snd_sid;
	value->sndrcvinfo.sinfo_flags = from->snd_flags;
	value->sndrcvinfo.sinfo_ppid = from->snd_ppid;
	value->sndrcvinfo.sinfo_context = from->snd_context;
	value->sndrcvinfo.sinfo_timetolive = GET_THERE(s, SCTP_DEFAULT_PRINFO, lifetime) == 0 ? lifetime.pr_value : 0;
	*length = sizeof(value->sndrcvinfo);
	return error;
}

static int set_primary(struct sctp_socket *s, const struct row *row, union value *value, size_t)
{
	const struct sctp_setprim to = { .ssp_assoc_id = value->primary.ssp_assoc_id, .ssp_addr = value->primary.ssp_addr };

	return set_there(s, row->usrsctp, &to, sizeof(to));
}

static int get_primary(struct sctp_socket *s, const struct row *row, union value *value, size_t *length)
{
	struct sctp_setprim from = { .ssp_assoc_id = value->association };
	int error = GET_THERE(s, row->usrsctp, from);

	value->primary.ssp_addr = from.ssp_addr;
	*length = sizeof(value->primary);
	return error;
}

/* Options that take either an int or {association, value}. */
static int set_number_of_association(struct sctp_socket *s, const struct row *row, union value *value, size_t length)
{
	struct sctp_assoc_value to = value->of_association;

	if (length < sizeof(to))
		to = (struct sctp_assoc_value){ .assoc_value = (uint32_t)value->number };
	return set_there(s, row->usrsctp, &to, sizeof(to));
}

static int get_number_of_association(struct sctp_socket *s, const struct row *row, union value *value, size_t *length)
{
	const bool is_short = *length < sizeof(value->of_association);
	struct sctp_assoc_value both = { 0 };
	int error;

	if (!is_short)
		both = value->of_association;
	error = GET_THERE(s, row->usrsctp, both);
	if (is_short)
		value->number = (int32_t)both.assoc_value;
	else
		value->of_association = both;
	*length = is_short ? sizeof(value->number) : sizeof(both);
	return error;
}

/* The older form is shorter, it has no frequency; its delay 0 is: none. */
static bool is_sack_length(size_t length)
{
	return length == sizeof(struct sctp_sack_info) || length == sizeof(struct sctp_assoc_value);
}

static int set_sack_delay(struct sctp_socket *s, const struct row *, union value *value, size_t length)
{
	if (!is_sack_length(length) || value->sack.sack_delay > LONGEST_SACK_DELAY_MS)
		return EINVAL;
	if (length < sizeof(value->sack) && value->sack.sack_delay == 0)
		value->sack.sack_freq = 1;
	return set_sack(s, value->sack);
}

static int get_sack_delay(struct sctp_socket *s, const struct row *row, union value *value, size_t *length)
{
	struct sctp_sack_info sack = { .sack_assoc_id = value->association };
	int error = is_sack_length(*length) ? GET_THERE(s, row->usrsctp, sack) : EINVAL;

	value->sack.sack_delay = sack_is_off(&sack) ? 0 : sack.sack_delay;
	value->sack.sack_freq = sack.sack_freq;
	return error;
}

#define NUMBER sizeof(int32_t)

static const struct row rows[] = {
	{ SOL_SOCKET, SO_LINGER, 0, 0, 0, set_linger, get_linger },
	{ SOL_SOCKET, SO_SNDBUF, 0, NUMBER, NUMBER, set_buffer, get_kept, offsetof(struct sctp_socket, send_buffer) },
	{ SOL_SOCKET, SO_RCVBUF, 0, NUMBER, NUMBER, set_buffer, get_kept, offsetof(struct sctp_socket, receive_buffer) },
	{ SOL_SOCKET, SO_REUSEPORT, 0, NUMBER, NUMBER, set_flag, get_flag, offsetof(struct sctp_socket, reuses_port) },
	{ SOL_SOCKET, SO_ERROR, 0, 0, NUMBER, NULL, get_number },
	{ SOL_SOCKET, SO_TYPE, 0, 0, NUMBER, NULL, get_kept, offsetof(struct sctp_socket, type) },
	{ SOL_SOCKET, SO_DOMAIN, 0, 0, NUMBER, NULL, get_kept, offsetof(struct sctp_socket, domain) },
	{ SOL_SOCKET, SO_PROTOCOL, 0, 0, NUMBER, NULL, get_number },
	{ SOL_SOCKET, SO_ACCEPTCONN, 0, 0, NUMBER, NULL, get_number },
	{ IPPROTO_IPV6, IPV6_V6ONLY, 0, 0, NUMBER, set_v6only, get_flag, offsetof(struct sctp_socket, v6only) },
	{ IPPROTO_SCTP, LX_EVENTS, 0, 0, 0, set_events, get_events },
	{ IPPROTO_SCTP, LX_EVENT, 0, sizeof(struct lx_event), sizeof(struct lx_event), set_event, get_event },
	{ IPPROTO_SCTP, LX_RECVRCVINFO, 0, NUMBER, NUMBER, set_flag, get_flag, offsetof(struct sctp_socket, wants_rcvinfo) },
	{ IPPROTO_SCTP, LX_RECVNXTINFO, 0, NUMBER, NUMBER, set_flag, get_flag, offsetof(struct sctp_socket, wants_nxtinfo) },
	{ IPPROTO_SCTP, LX_STATUS, 0, 0, 0, NULL, get_status },
	{ IPPROTO_SCTP, LX_GET_PEER_ADDR_INFO, SCTP_GET_PEER_ADDR_INFO, 0, 0, NULL, get_path },
	{ IPPROTO_SCTP, LX_AUTOCLOSE, SCTP_AUTOCLOSE, .is_of_many = true },
	{ IPPROTO_SCTP, LX_DISABLE_FRAGMENTS, SCTP_DISABLE_FRAGMENTS, 0, 0, set_disable_fragments },
	{ IPPROTO_SCTP, LX_RTOINFO, SCTP_RTOINFO, sizeof(struct sctp_rtoinfo), 0, set_timeouts },
	{ IPPROTO_SCTP, LX_ASSOCINFO, SCTP_ASSOCINFO, sizeof(struct lx_assocparams), 0, set_association_parameters, get_association_parameters },
	{ IPPROTO_SCTP, LX_PEER_ADDR_PARAMS, SCTP_PEER_ADDR_PARAMS, offsetof(struct lx_paddrparams, spp_ipv6_flowlabel), 0, set_path_parameters,
	  get_path_parameters },
	{ IPPROTO_SCTP, LX_DEFAULT_SEND_PARAM, SCTP_DEFAULT_SNDINFO, sizeof(struct lx_sndrcvinfo), sizeof(struct lx_sndrcvinfo),
	  set_old_default_send, get_old_default_send },
	{ IPPROTO_SCTP, LX_DEFAULT_SNDINFO, SCTP_DEFAULT_SNDINFO, sizeof(struct lx_sndinfo), sizeof(struct lx_sndinfo), set_default_send,
	  get_default_send },
	{ IPPROTO_SCTP, LX_PRIMARY_ADDR, SCTP_PRIMARY_ADDR, sizeof(struct lx_prim), 0, set_primary, get_primary },
	{ IPPROTO_SCTP, LX_SET_PEER_PRIMARY_ADDR, SCTP_SET_PEER_PRIMARY_ADDR, sizeof(struct lx_prim), 0, set_primary },
	{ IPPROTO_SCTP, LX_MAXSEG, SCTP_MAXSEG, NUMBER, 0, set_number_of_association, get_number_of_association },
	{ IPPROTO_SCTP, LX_MAX_BURST, SCTP_MAX_BURST, NUMBER, 0, set_number_of_association },
	{ IPPROTO_SCTP, LX_DELAYED_SACK, SCTP_DELAYED_SACK, 0, 0, set_sack_delay, get_sack_delay },
	{ IPPROTO_SCTP, LX_INITMSG, SCTP_INITMSG },
	{ IPPROTO_SCTP, LX_NODELAY, SCTP_NODELAY },
	{ IPPROTO_SCTP, LX_ADAPTATION_LAYER, SCTP_ADAPTATION_LAYER },
	{ IPPROTO_SCTP, LX_I_WANT_MAPPED_V4_ADDR, SCTP_I_WANT_MAPPED_V4_ADDR },
	{ IPPROTO_SCTP, LX_CONTEXT, SCTP_CONTEXT },
	{ IPPROTO_SCTP, LX_FRAGMENT_INTERLEAVE, SCTP_FRAGMENT_INTERLEAVE },
	{ IPPROTO_SCTP, LX_PARTIAL_DELIVERY_POINT, SCTP_PARTIAL_DELIVERY_POINT },
	{ IPPROTO_SCTP, LX_GET_ASSOC_NUMBER, SCTP_GET_ASSOC_NUMBER },
	{ IPPROTO_SCTP, LX_GET_ASSOC_ID_LIST, SCTP_GET_ASSOC_ID_LIST },
	{ IPPROTO_SCTP, LX_REUSE_PORT, SCTP_REUSE_PORT },
	{ IPPROTO_SCTP, LX_PR_SUPPORTED, SCTP_PR_SUPPORTED },
	{ IPPROTO_SCTP, LX_RECONFIG_SUPPORTED, SCTP_RECONFIG_SUPPORTED },
	{ IPPROTO_SCTP, LX_ENABLE_STREAM_RESET, SCTP_ENABLE_STREAM_RESET },
};

static const struct row *row_of(int level, int option)
{
	/* TOS, traffic class and the like: accepted, without effect */
	static const struct row without_effect = { IPPROTO_IP, 0, 0, 0, NUMBER, set_nothing, get_nothing };
	static const struct row none = { 0 };
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].level == level && rows[i].name == option)
			return &rows[i];
	return level == IPPROTO_IP || level == IPPROTO_IPV6 ? &without_effect : &none;
}

int options_set(struct sctp_socket *s, int level, int option, const char *bytes, size_t length)
{
	static union value value;
	const struct row *row = row_of(level, option);

	if (length < row->set_least || (row->is_of_many && IS_ONE_TO_ONE(s)))
		return length < row->set_least ? EINVAL : EOPNOTSUPP;
	memset(&value, 0, sizeof(value));
	memcpy(&value, bytes, length);
	if (row->set != NULL)
		return row->set(s, row, &value, length);
	return row->usrsctp != 0 ? set_there(s, row->usrsctp, &value, length) : ENOPROTOOPT;
}

int options_get(struct sctp_socket *s, int level, int option, char *bytes, size_t *length)
{
	static union value value;
	const struct row *row = row_of(level, option);
	const size_t room = *length;
	int error;

	if (room < row->get_least || (row->is_of_many && IS_ONE_TO_ONE(s)))
		return room < row->get_least ? EINVAL : EOPNOTSUPP;
	memset(&value, 0, sizeof(value));
	memcpy(&value, bytes, room);
	if (row->get != NULL)
		error = row->get(s, row, &value, length);
	else
		error = row->usrsctp != 0 ? get_there(s, row->usrsctp, &value, length) : ENOPROTOOPT;
	if (*length > room)
		*length = room; /* a shorter answer */
	memcpy(bytes, &value, *length);
	return error;
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
	shim_prepare(s);
}
