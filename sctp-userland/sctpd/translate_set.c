#include "translate.h"

#include <errno.h>
#include <string.h>

#define LONGEST_SACK_DELAY_MS 500
#define SMALLEST_PATH_MTU 512

static const struct same { /* equal layouts, other numbers */
	int linux_option, option;
} same[] = {
	{ LX_RTOINFO, SCTP_RTOINFO },
	{ LX_INITMSG, SCTP_INITMSG },
	{ LX_NODELAY, SCTP_NODELAY },
	{ LX_AUTOCLOSE, SCTP_AUTOCLOSE },
	{ LX_ADAPTATION_LAYER, SCTP_ADAPTATION_LAYER },
	{ LX_DISABLE_FRAGMENTS, SCTP_DISABLE_FRAGMENTS },
	{ LX_I_WANT_MAPPED_V4_ADDR, SCTP_I_WANT_MAPPED_V4_ADDR },
	{ LX_DELAYED_SACK, SCTP_DELAYED_SACK },
	{ LX_CONTEXT, SCTP_CONTEXT },
	{ LX_FRAGMENT_INTERLEAVE, SCTP_FRAGMENT_INTERLEAVE },
	{ LX_PARTIAL_DELIVERY_POINT, SCTP_PARTIAL_DELIVERY_POINT },
	{ LX_MAX_BURST, SCTP_MAX_BURST },
	{ LX_GET_ASSOC_NUMBER, SCTP_GET_ASSOC_NUMBER },
	{ LX_GET_ASSOC_ID_LIST, SCTP_GET_ASSOC_ID_LIST },
	{ LX_REUSE_PORT, SCTP_REUSE_PORT },
	{ LX_PR_SUPPORTED, SCTP_PR_SUPPORTED },
	{ LX_RECONFIG_SUPPORTED, SCTP_RECONFIG_SUPPORTED },
	{ LX_ENABLE_STREAM_RESET, SCTP_ENABLE_STREAM_RESET },
};

int translate_same(int linux_option)
{
	size_t i;

	for (i = 0; i < sizeof(same) / sizeof(same[0]); i++)
		if (same[i].linux_option == linux_option)
			return same[i].option;
	return -1;
}

int translate_error(int error)
{
	return error == ENOENT ? EINVAL : error;
}

static int set(struct sctp_socket *s, int option, const void *value, size_t length)
{
	return usrsctp_setsockopt(s->so, IPPROTO_SCTP, option, value, (socklen_t)length) < 0 ? translate_error(errno) : 0;
}

bool translate_is_any(struct sockaddr_storage address)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)&address;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&address;

	if (address.ss_family == AF_INET)
		return v4->sin_addr.s_addr == INADDR_ANY;
	return address.ss_family != AF_INET6 || IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr);
}

static int set_association_parameters(struct sctp_socket *s, const char *value, size_t length)
{
	struct lx_assocparams from;
	struct sctp_assocparams to = { 0 };

	if (length < sizeof(from))
		return EINVAL;
	memcpy(&from, value, sizeof(from));
	to.sasoc_assoc_id = from.assoc_id;
	to.sasoc_asocmaxrxt = from.asocmaxrxt;
	to.sasoc_cookie_life = from.cookie_life;
	return set(s, SCTP_ASSOCINFO, &to, sizeof(to));
}

static bool is_both(uint32_t flags, uint32_t both)
{
	return (flags & both) == both;
}

/* What Linux refuses; usrsctp takes some of it. */
static bool is_wrong(struct sctp_socket *s, const struct lx_paddrparams *from)
{
	struct sockaddr_storage address = from->address;

	return is_both(from->flags, SPP_HB_ENABLE | SPP_HB_DISABLE) || is_both(from->flags, SPP_PMTUD_ENABLE | SPP_PMTUD_DISABLE) ||
	       is_both(from->flags, LX_SPP_SACKDELAY_ENABLE | LX_SPP_SACKDELAY_DISABLE) || from->sackdelay > LONGEST_SACK_DELAY_MS ||
	       (from->pathmtu != 0 && from->pathmtu < SMALLEST_PATH_MTU) ||
	       (!translate_is_any(address) && usrsctp_getassocid(s->so, (struct sockaddr *)&address) == 0) ||
	       (from->flags & SPP_HB_DEMAND && translate_is_any(address) && from->assoc_id == 0 && !IS_ONE_TO_ONE(s));
}

/* delay 0 in the older form: none. */
static int set_sack_delay(struct sctp_socket *s, const char *value, size_t length)
{
	struct sctp_sack_info sack = { 0 };

	if (length != sizeof(sack) && length != sizeof(struct sctp_assoc_value))
		return EINVAL;
	memcpy(&sack, value, length);
	if (sack.sack_delay > LONGEST_SACK_DELAY_MS)
		return EINVAL;
	if (length != sizeof(sack) && sack.sack_delay == 0)
		sack.sack_freq = 1;
	return set(s, SCTP_DELAYED_SACK, &sack, sizeof(sack));
}

static int set_peer_parameters(struct sctp_socket *s, const char *value, size_t length)
{
	struct lx_paddrparams from = { 0 };
	struct sctp_paddrparams to = { 0 };

	if (length < offsetof(struct lx_paddrparams, ipv6_flowlabel))
		return EINVAL;
	memcpy(&from, value, length < sizeof(from) ? length : sizeof(from));
	if (is_wrong(s, &from))
		return EINVAL;
	to.spp_address.ss_family = AF_INET; /* 0.0.0.0: all paths; usrsctp refuses an address without family */
	if (!translate_is_any(from.address))
		to.spp_address = from.address;
	to.spp_assoc_id = from.assoc_id;
	to.spp_hbinterval = from.hbinterval;
	to.spp_pathmaxrxt = from.pathmaxrxt;
	to.spp_pathmtu = from.pathmtu;
	to.spp_flags = from.flags & (SPP_HB_ENABLE | SPP_HB_DISABLE | SPP_HB_DEMAND | SPP_PMTUD_ENABLE | SPP_PMTUD_DISABLE |
				     SPP_HB_TIME_IS_ZERO);
	if (to.spp_hbinterval != 0 && !(to.spp_flags & (SPP_HB_ENABLE | SPP_HB_DISABLE)))
		to.spp_hbinterval = 0;
	if (from.flags & (LX_SPP_SACKDELAY_ENABLE | LX_SPP_SACKDELAY_DISABLE)) {
		struct sctp_sack_info sack = { from.assoc_id, from.sackdelay, 0 };

		if (from.flags & LX_SPP_SACKDELAY_DISABLE)
			sack.sack_freq = 1;
		set(s, SCTP_DELAYED_SACK, &sack, sizeof(sack));
	}
	return set(s, SCTP_PEER_ADDR_PARAMS, &to, sizeof(to));
}

static int set_default_send_information(struct sctp_socket *s, const char *value, size_t length)
{
	struct lx_sndinfo from;
	struct sctp_sndinfo to = { 0 };

	if (length < sizeof(from))
		return EINVAL;
	memcpy(&from, value, sizeof(from));
	if (from.flags & ~(LX_UNORDERED | LX_ADDR_OVER | LX_ABORT | LX_EOF))
		return EINVAL;
	to.snd_sid = from.sid;
	to.snd_flags = from.flags & LX_UNORDERED ? SCTP_UNORDERED : 0;
	to.snd_ppid = from.ppid;
	to.snd_context = from.context;
	to.snd_assoc_id = from.assoc_id;
	return set(s, SCTP_DEFAULT_SNDINFO, &to, sizeof(to));
}

/* The older form of the same. */
static int set_default_send(struct sctp_socket *s, const char *value, size_t length)
{
	struct lx_sndrcvinfo from;
	struct lx_sndinfo same_as;

	if (length < sizeof(from))
		return EINVAL;
	memcpy(&from, value, sizeof(from));
	same_as = (struct lx_sndinfo){ from.stream, from.flags, from.ppid, from.context, from.assoc_id };
	s->default_timetolive = from.timetolive;
	return set_default_send_information(s, (const char *)&same_as, sizeof(same_as));
}

static int set_primary(struct sctp_socket *s, int option, const char *value, size_t length)
{
	struct lx_prim from;
	struct sctp_setprim to = { 0 };

	if (length < sizeof(from))
		return EINVAL;
	memcpy(&from, value, sizeof(from));
	to.ssp_assoc_id = from.assoc_id;
	to.ssp_addr = from.addr;
	return set(s, option, &to, sizeof(to));
}

/* Linux lets 0 stand for "as it is" and doesn't ask that the initial timeout lie between the others; usrsctp does. */
static int set_timeouts(struct sctp_socket *s, const char *value, size_t length)
{
	struct sctp_rtoinfo to, now;
	socklen_t room = sizeof(now);

	if (length < sizeof(to))
		return EINVAL;
	memcpy(&to, value, sizeof(to));
	now = (struct sctp_rtoinfo){ .srto_assoc_id = to.srto_assoc_id };
	if (usrsctp_getsockopt(s->so, IPPROTO_SCTP, SCTP_RTOINFO, &now, &room) < 0)
		return EINVAL;
	to.srto_min = to.srto_min != 0 ? to.srto_min : now.srto_min;
	to.srto_max = to.srto_max != 0 ? to.srto_max : now.srto_max;
	to.srto_initial = to.srto_initial != 0 ? to.srto_initial : now.srto_initial;
	if (to.srto_min > to.srto_max)
		return EINVAL;
	if (to.srto_initial < to.srto_min)
		to.srto_initial = to.srto_min;
	if (to.srto_initial > to.srto_max)
		to.srto_initial = to.srto_max;
	return set(s, SCTP_RTOINFO, &to, sizeof(to));
}

/* Options that take either an int or {association, value}. */
static int set_value(struct sctp_socket *s, int option, const char *value, size_t length)
{
	struct sctp_assoc_value to = { 0 };

	if (length >= sizeof(to))
		memcpy(&to, value, sizeof(to));
	else if (length >= sizeof(uint32_t))
		memcpy(&to.assoc_value, value, sizeof(to.assoc_value));
	else
		return EINVAL;
	return set(s, option, &to, sizeof(to));
}

int translate_set(struct sctp_socket *s, int option, const char *value, size_t length)
{
	int number;

	switch (option) {
	case LX_RTOINFO:
		return set_timeouts(s, value, length);
	case LX_ASSOCINFO:
		return set_association_parameters(s, value, length);
	case LX_PEER_ADDR_PARAMS:
		return set_peer_parameters(s, value, length);
	case LX_DEFAULT_SEND_PARAM:
		return set_default_send(s, value, length);
	case LX_DEFAULT_SNDINFO:
		return set_default_send_information(s, value, length);
	case LX_PRIMARY_ADDR:
		return set_primary(s, SCTP_PRIMARY_ADDR, value, length);
	case LX_SET_PEER_PRIMARY_ADDR:
		return set_primary(s, SCTP_SET_PEER_PRIMARY_ADDR, value, length);
	case LX_MAXSEG:
		return set_value(s, SCTP_MAXSEG, value, length);
	case LX_MAX_BURST:
		return set_value(s, SCTP_MAX_BURST, value, length);
	case LX_DELAYED_SACK:
		return set_sack_delay(s, value, length);
	default:
		break;
	}
	number = translate_same(option);
	return number < 0 ? ENOPROTOOPT : set(s, number, value, length);
}

uint32_t translate_association(const struct sctp_socket *s, uint32_t association)
{
	return IS_ONE_TO_ONE(s) ? 0 : association;
}


static uint16_t usrsctp_flags(uint16_t flags)
{
	return (uint16_t)((flags & LX_UNORDERED ? SCTP_UNORDERED : 0) | (flags & LX_ADDR_OVER ? SCTP_ADDR_OVER : 0) |
			  (flags & LX_ABORT ? SCTP_ABORT : 0) | (flags & LX_EOF ? SCTP_EOF : 0) |
			  (flags & LX_SENDALL ? SCTP_SENDALL : 0) |
			  (flags & LX_SACK_IMMEDIATELY ? SCTP_SACK_IMMEDIATELY : 0));
}

static uint16_t usrsctp_policy(uint16_t policy)
{
	switch (policy & LX_PR_MASK) {
	case LX_PR_TTL:
		return SCTP_PR_SCTP_TTL;
	case LX_PR_RTX:
		return SCTP_PR_SCTP_RTX;
	case LX_PR_PRIO:
		return SCTP_PR_SCTP_BUF;
	default:
		return SCTP_PR_SCTP_NONE;
	}
}

void translate_send(const struct sctp_socket *s, const struct send_parameters *send, struct sctp_sendv_spa *to)
{
	*to = (struct sctp_sendv_spa){ .sendv_flags = SCTP_SEND_SNDINFO_VALID };
	to->sendv_sndinfo.snd_sid = send->stream;
	to->sendv_sndinfo.snd_flags = usrsctp_flags(send->flags);
	to->sendv_sndinfo.snd_ppid = send->ppid;
	to->sendv_sndinfo.snd_context = send->context;
	to->sendv_sndinfo.snd_assoc_id = translate_association(s, send->association);
	if (send->pr_policy == 0)
		return;
	to->sendv_flags |= SCTP_SEND_PRINFO_VALID;
	to->sendv_prinfo.pr_policy = usrsctp_policy(send->pr_policy);
	to->sendv_prinfo.pr_value = send->pr_value;
}
