#include "message.h"

#include <string.h>

enum {
	PARAMETER_IPV4 = 0x0001,
	PARAMETER_IPV6 = 0x0002,
	PARAMETER_POLICY = 0x0008,
	PARAMETER_HANDLE = 0x0009,
	PARAMETER_ELEMENT = 0x000a,
	PARAMETER_SERVER = 0x000b,
	PARAMETER_ERROR = 0x000c,
	PARAMETER_IDENTIFIER = 0x000e,
	PARAMETER_CHECKSUM = 0x000f,
	PARAMETER_ITEMS = 0x803f,
};

#define HEADER 4
#define MOST_POLICY 64

/* The bytes still to be read. */
struct bytes {
	const uint8_t *at;
	size_t left;
};

static uint32_t read_u32(const uint8_t *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static uint16_t read_u16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

static bool take(struct bytes *bytes, size_t length, const uint8_t **at)
{
	if (bytes->left < length)
		return false;
	*at = bytes->at;
	bytes->at += length;
	bytes->left -= length;
	return true;
}

static bool take_u32(struct bytes *bytes, uint32_t *number)
{
	const uint8_t *at;

	if (!take(bytes, 4, &at))
		return false;
	*number = read_u32(at);
	return true;
}

static bool is_next(const struct bytes *bytes, uint16_t type)
{
	return bytes->left >= HEADER && read_u16(bytes->at) == type;
}

/* A parameter of this type with its padding, which only the end of the message may lack. */
static bool take_parameter(struct bytes *bytes, uint16_t type, struct bytes *value)
{
	size_t length, padding;

	if (!is_next(bytes, type))
		return false;
	length = read_u16(bytes->at + 2);
	if (length < HEADER || length > bytes->left)
		return false;
	value->at = bytes->at + HEADER;
	value->left = length - HEADER;
	padding = -length % 4;
	if (padding > bytes->left - length)
		return false;
	bytes->at += length + padding;
	bytes->left -= length + padding;
	return true;
}

static enum form read_handle(struct bytes *bytes, struct element *element)
{
	struct bytes value;

	if (!take_parameter(bytes, PARAMETER_HANDLE, &value) || value.left == 0)
		return FORM_MALFORMED;
	if (value.left > MAX_HANDLE)
		return FORM_HANDLE;
	element->handle = value.at;
	element->handle_length = value.left;
	return FORM_RIGHT;
}

static enum form read_transport(struct bytes *bytes, struct transport *transport, bool must_be_sctp)
{
	const bool is_sctp = is_next(bytes, TRANSPORT_SCTP);
	const uint16_t type = is_sctp ? TRANSPORT_SCTP : is_next(bytes, TRANSPORT_TCP) ? TRANSPORT_TCP : TRANSPORT_UDP;
	const uint8_t *port;
	struct bytes value, address;

	if ((must_be_sctp && !is_sctp) || !take_parameter(bytes, type, &value) || !take(&value, 4, &port))
		return FORM_MALFORMED;
	transport->protocol = type;
	transport->use = read_u16(port + 2);
	transport->count = 0;
	while (value.left) {
		if (transport->count == MAX_TRANSPORT_ADDRESSES)
			return FORM_ADDRESSES;
		if (take_parameter(&value, PARAMETER_IPV4, &address) && address.left == 4)
			transport->addresses[transport->count++] = address_v4(address.at);
		else if (take_parameter(&value, PARAMETER_IPV6, &address) && address.left == ADDRESS_BYTES)
			memcpy(&transport->addresses[transport->count++], address.at, ADDRESS_BYTES);
		else
			return FORM_MALFORMED;
	}
	return transport->count == 1 || (is_sctp && transport->count) ? FORM_RIGHT : FORM_ADDRESSES;
}

static enum form read_element(struct bytes *bytes, struct element *element, bool is_enrp)
{
	struct bytes value, policy;
	enum form form;

	if (!take_parameter(bytes, PARAMETER_ELEMENT, &value) || !take_u32(&value, &element->identifier) ||
	    !take_u32(&value, &element->home) || !take_u32(&value, &element->life_ms))
		return FORM_MALFORMED;
	if (element->identifier == 0 || (is_enrp && element->home == 0))
		return FORM_ZERO;
	form = read_transport(&value, &element->user, false);
	if (form != FORM_RIGHT)
		return form;
	if (!take_parameter(&value, PARAMETER_POLICY, &policy) || policy.left < 4 || policy.left > MOST_POLICY)
		return FORM_MALFORMED;
	element->policy = read_u32(policy.at);
	element->asap.count = 0;
	if (is_enrp && value.left) { /* some updates that delete have none */
		form = read_transport(&value, &element->asap, true);
		if (form != FORM_RIGHT)
			return form;
	}
	return value.left ? FORM_MALFORMED : FORM_RIGHT;
}

static enum form read_identifier(struct bytes *bytes, struct element *element)
{
	struct bytes value;

	if (!take_parameter(bytes, PARAMETER_IDENTIFIER, &value) || value.left != 4)
		return FORM_MALFORMED;
	element->identifier = read_u32(value.at);
	return FORM_RIGHT;
}

static enum form read_asap(struct message *message, struct bytes *bytes)
{
	struct bytes value;
	enum form form = read_handle(bytes, &message->element);

	if (form != FORM_RIGHT)
		return form;
	switch (message->type) {
	case ASAP_REGISTRATION:
		return read_element(bytes, &message->element, false);
	case ASAP_HANDLE_RESOLUTION:
		if (bytes->left && (!take_parameter(bytes, PARAMETER_ITEMS, &value) || value.left != 4))
			return FORM_MALFORMED;
		return FORM_RIGHT;
	case ASAP_DEREGISTRATION:
	case ASAP_KEEP_ALIVE_ACK:
	case ASAP_UNREACHABLE:
		return read_identifier(bytes, &message->element);
	default:
		return FORM_MALFORMED;
	}
}

static enum form read_server(struct bytes *bytes, uint32_t *identifier)
{
	struct transport transport;
	struct bytes value;
	enum form form;

	if (!take_parameter(bytes, PARAMETER_SERVER, &value) || !take_u32(&value, identifier))
		return FORM_MALFORMED;
	form = read_transport(&value, &transport, true);
	return form == FORM_RIGHT && value.left ? FORM_MALFORMED : form;
}

static enum form read_presence(struct message *message, struct bytes *bytes)
{
	struct bytes checksum;
	uint32_t identifier = 0;
	enum form form;

	if (!take_parameter(bytes, PARAMETER_CHECKSUM, &checksum) || (checksum.left != 2 && checksum.left != 4))
		return FORM_MALFORMED;
	form = read_server(bytes, &identifier); /* without it rspregistrar reads where nothing is */
	if (form != FORM_RIGHT)
		return form;
	return identifier == message->sender ? FORM_RIGHT : FORM_MALFORMED;
}

static enum form read_table(struct message *message, struct bytes *bytes)
{
	struct element *element = &message->element;
	enum form form = FORM_RIGHT;

	message->table = bytes->at;
	message->table_length = bytes->left;
	while (bytes->left && form == FORM_RIGHT) {
		if (is_next(bytes, PARAMETER_HANDLE))
			form = read_handle(bytes, element);
		else if (element->handle)
			form = read_element(bytes, element, true);
		else
			return FORM_MALFORMED;
	}
	memset(element, 0, sizeof(*element));
	return form;
}

static enum form read_enrp(struct message *message, struct bytes *bytes)
{
	struct bytes value;
	const uint8_t *at;
	uint32_t identifier;
	enum form form;

	if (!take_u32(bytes, &message->sender) || !take_u32(bytes, &message->receiver))
		return FORM_MALFORMED;
	if (message->sender == 0)
		return FORM_ZERO;
	switch (message->type) {
	case ENRP_PRESENCE:
		return read_presence(message, bytes);
	case ENRP_TABLE_REQUEST:
	case ENRP_LIST_REQUEST:
		return FORM_RIGHT;
	case ENRP_TABLE_RESPONSE:
		return read_table(message, bytes);
	case ENRP_UPDATE:
		if (!take(bytes, 4, &at))
			return FORM_MALFORMED;
		message->action = read_u16(at);
		if (message->action != UPDATE_ADD && message->action != UPDATE_DELETE)
			return FORM_MALFORMED;
		form = read_handle(bytes, &message->element);
		return form == FORM_RIGHT ? read_element(bytes, &message->element, true) : form;
	case ENRP_LIST_RESPONSE: /* a registrar that has not spoken yet is in it with identifier 0 */
		while (bytes->left) {
			form = read_server(bytes, &identifier);
			if (form != FORM_RIGHT)
				return form;
			message->servers++;
		}
		return FORM_RIGHT;
	case ENRP_INIT_TAKEOVER:
	case ENRP_INIT_TAKEOVER_ACK:
	case ENRP_TAKEOVER_SERVER:
		if (!take_u32(bytes, &identifier))
			return FORM_MALFORMED;
		return identifier ? FORM_RIGHT : FORM_ZERO;
	case ENRP_ERROR:
		return take_parameter(bytes, PARAMETER_ERROR, &value) ? FORM_RIGHT : FORM_MALFORMED;
	default:
		return FORM_MALFORMED;
	}
}

enum form message_read(uint32_t ppid, const uint8_t *data, size_t length, struct message *message)
{
	struct bytes bytes = { data, length };
	const uint8_t *header;
	size_t said;
	enum form form;

	memset(message, 0, sizeof(*message));
	if (!take(&bytes, HEADER, &header))
		return FORM_MALFORMED;
	message->ppid = ppid;
	message->type = header[0];
	message->flags = header[1];
	said = read_u16(header + 2);
	/* rsplib's own length leaves the padding of the last parameter in; ours too. Some others leave it out. */
	if (said < HEADER || said > length || length - said > 3 || (said + 3) / 4 * 4 < length || length % 4)
		return FORM_MALFORMED;
	form = ppid == PPID_ASAP ? read_asap(message, &bytes) : ppid == PPID_ENRP ? read_enrp(message, &bytes) : FORM_MALFORMED;
	return form == FORM_RIGHT && bytes.left ? FORM_MALFORMED : form;
}

bool message_next(struct message *message, struct element *element)
{
	struct bytes bytes = { message->table, message->table_length };
	bool found = false;

	while (bytes.left && !found) {
		if (is_next(&bytes, PARAMETER_HANDLE)) {
			if (read_handle(&bytes, element) != FORM_RIGHT)
				return false;
		} else if (read_element(&bytes, element, true) == FORM_RIGHT) {
			found = true;
		} else {
			return false;
		}
	}
	message->table = bytes.at;
	message->table_length = bytes.left;
	return found;
}
