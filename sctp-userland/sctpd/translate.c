#include "translate.h"

#include <errno.h>
#include <string.h>

static uint16_t usrsctp_flags(uint16_t flags)
{
	return (uint16_t)((flags & LX_UNORDERED ? SCTP_UNORDERED : 0) | (flags & LX_ADDR_OVER ? SCTP_ADDR_OVER : 0) |
			  (flags & LX_ABORT ? SCTP_ABORT : 0) | (flags & LX_EOF ? SCTP_EOF : 0) |
			  (flags & LX_SENDALL ? SCTP_SENDALL : 0) |
			  (flags & LX_SACK_IMMEDIATELY ? SCTP_SACK_IMMEDIATELY : 0));
}

static uint16_t usrsctp_policy(uint16_t policy)
{
	switch (policy & LX_PR_SCTP_MASK) {
	case LX_PR_SCTP_TTL:
		return SCTP_PR_SCTP_TTL;
	case LX_PR_SCTP_RTX:
		return SCTP_PR_SCTP_RTX;
	case LX_PR_SCTP_PRIO:
		return SCTP_PR_SCTP_BUF;
	default:
		return SCTP_PR_SCTP_NONE;
	}
}

struct send_parameters translate_defaults(const struct sctp_socket *s, uint32_t association, struct send_parameters send)
{
	struct sctp_default_prinfo lifetime = { .pr_assoc_id = association };
	struct sctp_sndinfo information = { .snd_assoc_id = association };
	socklen_t lifetime_length = sizeof(lifetime), length = sizeof(information);

	if (!s->has_lifetime || send.gives & GIVES_LIFETIME ||
	    usrsctp_getsockopt(s->so, IPPROTO_SCTP, SCTP_DEFAULT_PRINFO, &lifetime, &lifetime_length) < 0 || lifetime.pr_policy != SCTP_PR_SCTP_TTL)
		return send;
	send.pr_policy = LX_PR_SCTP_TTL;
	send.pr_value = lifetime.pr_value;
	if (send.gives & GIVES_INFORMATION || usrsctp_getsockopt(s->so, IPPROTO_SCTP, SCTP_DEFAULT_SNDINFO, &information, &length) < 0)
		return send;
	send.gives |= GIVES_INFORMATION; /* usrsctp takes all by default, or nothing */
	send.stream = information.snd_sid;
	send.flags |= information.snd_flags & SCTP_UNORDERED ? LX_UNORDERED : 0;
	send.ppid = information.snd_ppid;
	send.context = information.snd_context;
	return send;
}

ssize_t translate_send(struct sctp_socket *s, const struct send_parameters *send, const struct sockaddr_in6 *to, const char *bytes, size_t length)
{
	struct sctp_sendv_spa all = { .sendv_flags = SCTP_SEND_SNDINFO_VALID };
	const bool given = send->gives & GIVES_INFORMATION;

	if (s->path_wait_ms != 0)
		socket_doubt_paths(s);
	all.sendv_sndinfo.snd_sid = send->stream;
	all.sendv_sndinfo.snd_flags = usrsctp_flags(send->flags);
	all.sendv_sndinfo.snd_ppid = send->ppid;
	all.sendv_sndinfo.snd_context = send->context;
	if (!IS_ONE_TO_ONE(s) && to == NULL) /* an address decides, if given */
		all.sendv_sndinfo.snd_assoc_id = send->association;
	if (send->pr_policy != 0) {
		all.sendv_flags |= SCTP_SEND_PRINFO_VALID;
		all.sendv_prinfo.pr_policy = usrsctp_policy(send->pr_policy);
		all.sendv_prinfo.pr_value = send->pr_value;
	}
	return usrsctp_sendv(s->so, bytes, length, (struct sockaddr *)(uintptr_t)to, to != NULL, given ? &all : NULL,
			     given ? (socklen_t)sizeof(all) : 0, given ? SCTP_SENDV_SPA : SCTP_SENDV_NOINFO, 0);
}

struct lx_paddrinfo translate_path(const struct sctp_paddrinfo *from)
{
	struct lx_paddrinfo to = { .spinfo_assoc_id = from->spinfo_assoc_id, .spinfo_address = from->spinfo_address };

	to.spinfo_state = from->spinfo_state & SCTP_UNCONFIRMED ? LX_UNCONFIRMED : from->spinfo_state & SCTP_ACTIVE ? LX_ACTIVE : LX_INACTIVE;
	to.spinfo_cwnd = from->spinfo_cwnd;
	to.spinfo_srtt = from->spinfo_srtt;
	to.spinfo_rto = from->spinfo_rto;
	to.spinfo_mtu = from->spinfo_mtu;
	return to;
}

static int32_t linux_state(int32_t state)
{
	static const struct {
		int32_t usrsctp, linux_one;
	} states[] = {
		{ SCTP_COOKIE_WAIT, LX_COOKIE_WAIT },	      { SCTP_COOKIE_ECHOED, LX_COOKIE_ECHOED },
		{ SCTP_ESTABLISHED, LX_ESTABLISHED },	      { SCTP_SHUTDOWN_PENDING, LX_SHUTDOWN_PENDING },
		{ SCTP_SHUTDOWN_SENT, LX_SHUTDOWN_SENT },     { SCTP_SHUTDOWN_RECEIVED, LX_SHUTDOWN_RECEIVED },
		{ SCTP_SHUTDOWN_ACK_SENT, LX_SHUTDOWN_ACK_SENT },
	};
	size_t i;

	for (i = 0; i < sizeof(states) / sizeof(states[0]); i++)
		if (states[i].usrsctp == state)
			return states[i].linux_one;
	return LX_CLOSED;
}

struct buffer_use translate_buffer_use(const struct sctp_socket *s, uint32_t association)
{
	struct buffer_use use = { .association = association };
	socklen_t length = sizeof(use);

	return usrsctp_getsockopt(s->so, IPPROTO_SCTP, GET_BUFFER_USE, &use, &length) < 0 ? (struct buffer_use){ 0 } : use;
}

int translate_status(const struct sctp_socket *s, uint32_t association, struct lx_status *status)
{
	struct sctp_status from = { .sstat_assoc_id = association };
	socklen_t length = sizeof(from);

	if (usrsctp_getsockopt(s->so, IPPROTO_SCTP, SCTP_STATUS, &from, &length) < 0)
		return EINVAL;
	*status = (struct lx_status){ from.sstat_assoc_id,   linux_state(from.sstat_state), from.sstat_rwnd,
				      from.sstat_unackdata,  from.sstat_penddata,	    from.sstat_instrms,
				      from.sstat_outstrms,   from.sstat_fragmentation_point, translate_path(&from.sstat_primary) };
	return 0;
}
