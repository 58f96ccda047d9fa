/* ASAP and ENRP messages, read strictly: only what rspregistrar expects, where it expects it, of lengths that it survives.
 * rspregistrar skips what it does not know, and takes a parameter's type without its two high bits. Bytes that are read here in one way
 * only can't be read there in another. No memory is taken; what is found points into the message. */
#pragma once
#include "rules.h"

#define PPID_ASAP 11
#define PPID_ENRP 12
#define MAX_TRANSPORT_ADDRESSES 16

enum {
	ASAP_REGISTRATION = 1,
	ASAP_DEREGISTRATION = 2,
	ASAP_HANDLE_RESOLUTION = 5,
	ASAP_KEEP_ALIVE_ACK = 8,
	ASAP_UNREACHABLE = 9,
};

enum {
	ENRP_PRESENCE = 1,
	ENRP_TABLE_REQUEST = 2,
	ENRP_TABLE_RESPONSE = 3,
	ENRP_UPDATE = 4,
	ENRP_LIST_REQUEST = 5,
	ENRP_LIST_RESPONSE = 6,
	ENRP_INIT_TAKEOVER = 7,
	ENRP_INIT_TAKEOVER_ACK = 8,
	ENRP_TAKEOVER_SERVER = 9,
	ENRP_ERROR = 10,
};

#define FLAG_REJECT 0x01 /* of table and list responses */
#define UPDATE_ADD 0
#define UPDATE_DELETE 1

struct transport {
	uint16_t protocol; /* the type of its parameter */
	uint16_t use; /* 1: for data and control channel */
	struct address addresses[MAX_TRANSPORT_ADDRESSES];
	size_t count;
};

struct element {
	const uint8_t *handle;
	size_t handle_length;
	uint32_t identifier, home, life_ms, policy;
	struct transport user, asap; /* asap: none in ASAP */
};

struct message {
	uint32_t ppid;
	uint8_t type, flags;
	uint32_t sender, receiver; /* ENRP's registrars */
	uint16_t action; /* of an update */
	struct element element; /* of all but tables; `asap` and so on only where the message has a pool element */
	size_t servers; /* of a list response */
	/* The elements of a table: to be read by message_next(). */
	const uint8_t *table;
	size_t table_length;
};

enum form {
	FORM_RIGHT,
	FORM_MALFORMED, /* and all that rspregistrar has no use for */
	FORM_HANDLE, /* longer than 32 bytes */
	FORM_ADDRESSES, /* not exactly one with TCP or UDP */
	FORM_ZERO, /* an identifier that must not be 0 */
};

enum form message_read(uint32_t ppid, const uint8_t *bytes, size_t length, struct message *message);
/* Read the next element of a handle table that was right; false at its end. */
bool message_next(struct message *message, struct element *element);
