#include "notifications.h"

#include <arpa/inet.h>
#include <string.h>

#define NONE 0
#define CHUNK_HEADER 4
#define CAUSE_HEADER 4
#define SEND_FAILED_MORE 64 /* bytes: Linux's older form is longer */
#define LAST_FRAGMENT 1 /* flags of a DATA chunk */
#define FIRST_FRAGMENT 2
#define UNORDERED_CHUNK 4

const uint16_t notification_types[] = {
	[1] = SCTP_ASSOC_CHANGE,	  [2] = SCTP_PEER_ADDR_CHANGE,	  [3] = SCTP_SEND_FAILED_EVENT,
	[4] = SCTP_REMOTE_ERROR,	  [5] = SCTP_SHUTDOWN_EVENT,	  [6] = SCTP_PARTIAL_DELIVERY_EVENT,
	[7] = SCTP_ADAPTATION_INDICATION, [9] = SCTP_SENDER_DRY_EVENT,	  [10] = SCTP_STREAM_RESET_EVENT,
	[11] = SCTP_ASSOC_RESET_EVENT,	  [12] = SCTP_STREAM_CHANGE_EVENT, [13] = SCTP_SEND_FAILED_EVENT,
};

/* Linux's number of one of usrsctp's. */
static uint16_t linux_type_of(uint16_t type)
{
	int i = LX_EVENT_COUNT - 1;

	while (i > 0 && notification_types[i] != type)
		i--;
	return i > 0 ? (uint16_t)(0x8000 + i) : NONE;
}

static bool subscribed(const struct sctp_socket *s, uint16_t linux_type)
{
	return linux_type != NONE && s->events[linux_type - 0x8000] != 0;
}

static size_t peer_address_change(const char *from, size_t length, char *to)
{
	struct sctp_paddr_change change;
	struct lx_paddr_change result = { .spc_type = LX_PEER_ADDR_CHANGE, .spc_length = sizeof(result) };

	if (length < offsetof(struct sctp_paddr_change, spc_padding))
		return 0;
	memset(&change, 0, sizeof(change));
	memcpy(&change, from, length < sizeof(change) ? length : sizeof(change));
	result.spc_flags = change.spc_flags;
	result.spc_aaddr = change.spc_aaddr;
	result.spc_state = change.spc_state - 1;
	result.spc_error = change.spc_error;
	result.spc_assoc_id = change.spc_assoc_id;
	memcpy(to, &result, sizeof(result));
	return sizeof(result);
}

/* Old and new form of the same event; the message that failed follows. */
static size_t send_failed(const struct sctp_socket *s, const char *from, size_t length, char *to, size_t room)
{
	struct sctp_send_failed_event failed;
	struct lx_send_failed result = { .ssf_type = LX_SEND_FAILED };
	size_t data;

	if (length < offsetof(struct sctp_send_failed_event, ssfe_data))
		return 0;
	memcpy(&failed, from, offsetof(struct sctp_send_failed_event, ssfe_data));
	data = length - offsetof(struct sctp_send_failed_event, ssfe_data);
	failed.ssfe_flags = failed.ssfe_flags == SCTP_DATA_SENT;
	if (subscribed(s, LX_SEND_FAILED_EVENT) && length <= room) {
		memcpy(to, from, length);
		failed.ssfe_type = LX_SEND_FAILED_EVENT;
		memcpy(to, &failed, 4);
		return length;
	}
	if (!subscribed(s, LX_SEND_FAILED) || sizeof(result) + data > room)
		return 0;
	result.ssf_flags = failed.ssfe_flags;
	result.ssf_length = (uint32_t)(sizeof(result) + data);
	result.ssf_error = failed.ssfe_error;
	result.ssf_info.sinfo_flags = failed.ssfe_info.snd_flags; /* of the chunk: whether it is the first, or last, of its message */
	result.ssf_info.sinfo_stream = failed.ssfe_info.snd_sid;
	result.ssf_info.sinfo_ppid = failed.ssfe_info.snd_ppid;
	result.ssf_info.sinfo_context = failed.ssfe_info.snd_context;
	result.ssf_info.sinfo_assoc_id = result.ssf_assoc_id = failed.ssfe_assoc_id;
	memcpy(to, &result, sizeof(result));
	memcpy(to + sizeof(result), from + length - data, data);
	return sizeof(result) + data;
}

size_t notification_send_failed(const struct sctp_socket *s, uint32_t association, const struct send_parameters *send, const char *bytes,
				size_t length, bool is_first, bool is_last, char *to)
{
	struct sctp_send_failed_event failed = { .ssfe_type = SCTP_SEND_FAILED_EVENT, .ssfe_assoc_id = association };
	const size_t header = offsetof(struct sctp_send_failed_event, ssfe_data);
	static char event[MESSAGE_MAX + 256];

	failed.ssfe_flags = SCTP_DATA_UNSENT;
	failed.ssfe_length = (uint32_t)(header + length);
	failed.ssfe_info.snd_sid = send->stream;
	failed.ssfe_info.snd_flags = (uint16_t)((is_first ? FIRST_FRAGMENT : 0) | (is_last ? LAST_FRAGMENT : 0) |
						(send->flags & LX_UNORDERED ? UNORDERED_CHUNK : 0));
	failed.ssfe_info.snd_ppid = send->ppid;
	failed.ssfe_info.snd_context = send->context;
	failed.ssfe_info.snd_assoc_id = association;
	memcpy(event, &failed, header);
	memcpy(event + header, bytes, length);
	return send_failed(s, event, header + length, to, header + length + SEND_FAILED_MORE);
}

/* The layout that usrsctp delivers; usrsctp.h shows another one. */
struct pdapi_event {
	uint16_t type, flags;
	uint32_t length, indication;
	uint16_t stream, seq;
	uint32_t assoc_id;
};

static size_t partial_delivery(const char *from, size_t length, char *to)
{
	struct pdapi_event event;
	struct lx_pdapi_event result = { .pdapi_type = LX_PARTIAL_DELIVERY_EVENT, .pdapi_length = sizeof(result) };

	if (length < sizeof(event))
		return 0;
	memcpy(&event, from, sizeof(event));
	result.pdapi_flags = event.flags;
	result.pdapi_indication = event.indication - SCTP_PARTIAL_DELIVERY_ABORTED;
	result.pdapi_assoc_id = event.assoc_id;
	result.pdapi_stream = event.stream;
	result.pdapi_seq = event.seq;
	memcpy(to, &result, sizeof(result));
	return sizeof(result);
}

/* The data that came with it: usrsctp gives a list of features or the whole ABORT chunk, Linux the causes in that chunk. */
static size_t association_change(const char *from, size_t length, char *to)
{
	struct sctp_assoc_change change;
	size_t causes = 0;

	if (length < sizeof(change))
		return 0;
	memcpy(&change, from, sizeof(change));
	if (change.sac_state == SCTP_COMM_LOST && length > sizeof(change) + CHUNK_HEADER)
		causes = length - sizeof(change) - CHUNK_HEADER;
	memcpy(to + sizeof(change), from + length - causes, causes);
	if (change.sac_state != SCTP_COMM_UP && change.sac_state != SCTP_RESTART)
		change.sac_outbound_streams = change.sac_inbound_streams = 0;
	change.sac_type = LX_ASSOC_CHANGE;
	change.sac_error = htons(change.sac_error);
	change.sac_length = (uint32_t)(sizeof(change) + causes);
	change.sac_state--;
	memcpy(to, &change, sizeof(change));
	return sizeof(change) + causes;
}

/* usrsctp gives the whole ERROR chunk, Linux one cause: its number in network order, and what follows its header. */
static size_t remote_error(const char *from, size_t length, char *to)
{
	const size_t header = offsetof(struct sctp_remote_error, sre_data);
	const char *cause = from + header + CHUNK_HEADER;
	struct sctp_remote_error error;
	uint16_t size;

	if (length < header + CHUNK_HEADER + CAUSE_HEADER)
		return 0;
	memcpy(&error, from, header);
	memcpy(&error.sre_error, cause, sizeof(error.sre_error));
	memcpy(&size, cause + sizeof(error.sre_error), sizeof(size));
	size = ntohs(size);
	if (size < CAUSE_HEADER || header + CHUNK_HEADER + size > length)
		return 0;
	size -= CAUSE_HEADER;
	error.sre_type = LX_REMOTE_ERROR;
	error.sre_length = (uint32_t)(header + size);
	memcpy(to, &error, header);
	memcpy(to + header, cause + CAUSE_HEADER, size);
	return header + size;
}

size_t notification_translate(const struct sctp_socket *s, const char *from, size_t length, char *to, size_t room)
{
	uint16_t type, linux_type;

	if (length < sizeof(struct sctp_tlv) || length > room)
		return 0;
	memcpy(&type, from, sizeof(type));
	if (type == SCTP_SEND_FAILED_EVENT)
		return send_failed(s, from, length, to, room);
	linux_type = linux_type_of(type);
	if (!subscribed(s, linux_type))
		return 0;
	if (type == SCTP_PEER_ADDR_CHANGE)
		return room < sizeof(struct lx_paddr_change) ? 0 : peer_address_change(from, length, to);
	if (type == SCTP_PARTIAL_DELIVERY_EVENT)
		return room < sizeof(struct lx_pdapi_event) ? 0 : partial_delivery(from, length, to);
	if (type == SCTP_ASSOC_CHANGE)
		return association_change(from, length, to);
	if (type == SCTP_REMOTE_ERROR)
		return remote_error(from, length, to);
	memcpy(to, from, length);
	memcpy(to, &linux_type, sizeof(linux_type));
	return length;
}

uint32_t notification_association(const char *from, size_t length)
{
	static const size_t offsets[] = {
		[SCTP_ASSOC_CHANGE] = offsetof(struct sctp_assoc_change, sac_assoc_id),
		[SCTP_PEER_ADDR_CHANGE] = offsetof(struct sctp_paddr_change, spc_assoc_id),
		[SCTP_REMOTE_ERROR] = offsetof(struct sctp_remote_error, sre_assoc_id),
		[SCTP_SHUTDOWN_EVENT] = offsetof(struct sctp_shutdown_event, sse_assoc_id),
		[SCTP_ADAPTATION_INDICATION] = offsetof(struct sctp_adaptation_event, sai_assoc_id),
		[SCTP_PARTIAL_DELIVERY_EVENT] = offsetof(struct pdapi_event, assoc_id),
		[SCTP_STREAM_RESET_EVENT] = offsetof(struct sctp_stream_reset_event, strreset_assoc_id),
		[SCTP_SENDER_DRY_EVENT] = offsetof(struct sctp_sender_dry_event, sender_dry_assoc_id),
		[SCTP_ASSOC_RESET_EVENT] = offsetof(struct sctp_assoc_reset_event, assocreset_assoc_id),
		[SCTP_STREAM_CHANGE_EVENT] = offsetof(struct sctp_stream_change_event, strchange_assoc_id),
		[SCTP_SEND_FAILED_EVENT] = offsetof(struct sctp_send_failed_event, ssfe_assoc_id),
	};
	uint16_t type;
	uint32_t association;

	memcpy(&type, from, sizeof(type));
	if (type >= sizeof(offsets) / sizeof(offsets[0]) || offsets[type] == 0 || offsets[type] + sizeof(association) > length)
		return 0;
	memcpy(&association, from + offsets[type], sizeof(association));
	return association;
}
