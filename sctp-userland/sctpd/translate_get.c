#include <errno.h>
#include <string.h>

#include "translate.h"

static int get(struct sctp_socket *s, int option, void *value, size_t *length)
{
	socklen_t room = (socklen_t)*length;

	if (usrsctp_getsockopt(s->so, IPPROTO_SCTP, option, value, &room) < 0)
		return translate_error(errno);
	*length = room;
	return 0;
}

static int32_t linux_path_state(int32_t state)
{
	if (state & SCTP_UNCONFIRMED)
		return LX_UNCONFIRMED;
	return state & SCTP_ACTIVE ? LX_ACTIVE : LX_INACTIVE;
}

static struct lx_paddrinfo linux_path(const struct sctp_paddrinfo *from)
{
	struct lx_paddrinfo to;

	to.assoc_id = from->spinfo_assoc_id;
	to.address = from->spinfo_address;
	to.state = linux_path_state(from->spinfo_state);
	to.cwnd = from->spinfo_cwnd;
	to.srtt = from->spinfo_srtt;
	to.rto = from->spinfo_rto;
	to.mtu = from->spinfo_mtu;
	return to;
}

static int32_t linux_state(int32_t state)
{
	switch (state) {
	case SCTP_COOKIE_WAIT:
		return LX_COOKIE_WAIT;
	case SCTP_COOKIE_ECHOED:
		return LX_COOKIE_ECHOED;
	case SCTP_ESTABLISHED:
		return LX_ESTABLISHED;
	case SCTP_SHUTDOWN_PENDING:
		return LX_SHUTDOWN_PENDING;
	case SCTP_SHUTDOWN_SENT:
		return LX_SHUTDOWN_SENT;
	case SCTP_SHUTDOWN_RECEIVED:
		return LX_SHUTDOWN_RECEIVED;
	case SCTP_SHUTDOWN_ACK_SENT:
		return LX_SHUTDOWN_ACK_SENT;
	default:
		return LX_STATE_CLOSED;
	}
}

int translate_status(struct sctp_socket *s, uint32_t association, struct lx_status *status)
{
	struct sctp_status from = { .sstat_assoc_id = association };
	size_t length = sizeof(from);
	int error = get(s, SCTP_STATUS, &from, &length);

	if (error != 0)
		return EINVAL;
	status->assoc_id = from.sstat_assoc_id;
	status->state = linux_state(from.sstat_state);
	status->rwnd = from.sstat_rwnd;
	status->unackdata = from.sstat_unackdata;
	status->penddata = from.sstat_penddata;
	status->instrms = from.sstat_instrms;
	status->outstrms = from.sstat_outstrms;
	status->fragmentation_point = from.sstat_fragmentation_point;
	status->primary = linux_path(&from.sstat_primary);
	return 0;
}

static int give(char *value, size_t *length, const void *result, size_t size)
{
	if (*length < size)
		size = *length;
	memcpy(value, result, size);
	*length = size;
	return 0;
}

static int get_peer_parameters(struct sctp_socket *s, char *value, size_t *length)
{
	struct lx_paddrparams to = { 0 };
	struct sctp_paddrparams from = { 0 };
	struct sctp_sack_info sack = { 0 };
	size_t size = sizeof(from), sack_size = sizeof(sack);
	int error;

	memcpy(&to, value, *length < sizeof(to) ? *length : sizeof(to));
	from.spp_assoc_id = sack.sack_assoc_id = to.assoc_id;
	from.spp_address.ss_family = AF_INET; /* as in set_peer_parameters() */
	if (!translate_is_any(to.address))
		from.spp_address = to.address;
	error = get(s, SCTP_PEER_ADDR_PARAMS, &from, &size);
	if (error != 0)
		return error;
	get(s, SCTP_DELAYED_SACK, &sack, &sack_size);
	to.hbinterval = from.spp_hbinterval;
	to.pathmaxrxt = from.spp_pathmaxrxt;
	to.pathmtu = from.spp_pathmtu;
	to.sackdelay = sack.sack_delay;
	to.flags = (from.spp_flags & 0x1f) | LX_SPP_SACKDELAY_ENABLE;
	return give(value, length, &to, sizeof(to));
}

/* Of the association that is named in it. */
static int get_default_send_information(struct sctp_socket *s, struct lx_sndinfo *to)
{
	struct sctp_sndinfo from = { .snd_assoc_id = to->assoc_id };
	size_t size = sizeof(from);
	int error = get(s, SCTP_DEFAULT_SNDINFO, &from, &size);

	to->sid = from.snd_sid;
	to->flags = from.snd_flags & SCTP_UNORDERED ? LX_UNORDERED : 0;
	to->ppid = from.snd_ppid;
	to->context = from.snd_context;
	return error;
}

int translate_get(struct sctp_socket *s, int option, char *value, size_t *length)
{
	uint32_t association = 0;
	size_t size;
	int error, number;

	if (*length >= sizeof(association))
		memcpy(&association, value, sizeof(association));
	switch (option) {
	case LX_STATUS: {
		struct lx_status status;

		error = translate_status(s, association, &status);
		return error != 0 ? error : give(value, length, &status, sizeof(status));
	}
	case LX_GET_PEER_ADDR_INFO: {
		struct lx_paddrinfo to = { 0 };
		struct sctp_paddrinfo from = { 0 };

		memcpy(&to, value, *length < sizeof(to) ? *length : sizeof(to));
		from.spinfo_assoc_id = to.assoc_id;
		from.spinfo_address = to.address;
		if (!translate_is_any(to.address) && usrsctp_getassocid(s->so, (struct sockaddr *)&from.spinfo_address) == 0)
			return EINVAL;
		size = sizeof(from);
		error = get(s, SCTP_GET_PEER_ADDR_INFO, &from, &size);
		if (error != 0)
			return EINVAL;
		to = linux_path(&from);
		return give(value, length, &to, sizeof(to));
	}
	case LX_ASSOCINFO: {
		struct sctp_assocparams from = { .sasoc_assoc_id = association };
		struct lx_assocparams to = { .assoc_id = association };

		size = sizeof(from);
		error = get(s, SCTP_ASSOCINFO, &from, &size);
		to.asocmaxrxt = from.sasoc_asocmaxrxt;
		to.number_peer_destinations = from.sasoc_number_peer_destinations;
		to.peer_rwnd = from.sasoc_peer_rwnd;
		to.local_rwnd = from.sasoc_local_rwnd;
		to.cookie_life = from.sasoc_cookie_life;
		return error != 0 ? error : give(value, length, &to, sizeof(to));
	}
	case LX_PEER_ADDR_PARAMS:
		return get_peer_parameters(s, value, length);
	case LX_DEFAULT_SEND_PARAM: { /* the older form of the next */
		struct lx_sndinfo from = { 0 };
		struct lx_sndrcvinfo to = { 0 };

		if (*length < sizeof(to))
			return EINVAL;
		memcpy(&to, value, sizeof(to));
		from.assoc_id = to.assoc_id;
		error = get_default_send_information(s, &from);
		to.stream = from.sid;
		to.flags = from.flags;
		to.ppid = from.ppid;
		to.context = from.context;
		to.timetolive = s->default_timetolive;
		return error != 0 ? error : give(value, length, &to, sizeof(to));
	}
	case LX_DEFAULT_SNDINFO: {
		struct lx_sndinfo to = { 0 };

		if (*length < sizeof(to))
			return EINVAL;
		memcpy(&to, value, sizeof(to)); /* the association isn't its first field */
		error = get_default_send_information(s, &to);
		return error != 0 ? error : give(value, length, &to, sizeof(to));
	}
	case LX_PRIMARY_ADDR: {
		struct sctp_setprim from = { .ssp_assoc_id = association };
		struct lx_prim to = { .assoc_id = association };

		size = sizeof(from);
		error = get(s, SCTP_PRIMARY_ADDR, &from, &size);
		to.addr = from.ssp_addr;
		return error != 0 ? error : give(value, length, &to, sizeof(to));
	}
	case LX_MAXSEG: {
		struct sctp_assoc_value both = { 0 };

		if (*length >= sizeof(both))
			memcpy(&both, value, sizeof(both));
		size = sizeof(both);
		error = get(s, SCTP_MAXSEG, &both, &size);
		if (error != 0 || *length >= sizeof(both))
			return error != 0 ? error : give(value, length, &both, sizeof(both));
		return give(value, length, &both.assoc_value, sizeof(both.assoc_value));
	}
	case LX_DELAYED_SACK: { /* the older form has no frequency */
		struct sctp_sack_info sack = { .sack_assoc_id = association };

		size = sizeof(sack);
		error = get(s, SCTP_DELAYED_SACK, &sack, &size);
		if (error != 0 || (*length != sizeof(sack) && *length != sizeof(struct sctp_assoc_value)))
			return error != 0 ? error : EINVAL;
		return give(value, length, &sack, *length);
	}
	default:
		break;
	}
	number = translate_same(option);
	return number < 0 ? ENOPROTOOPT : get(s, number, value, length);
}
