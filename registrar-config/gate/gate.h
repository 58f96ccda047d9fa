/* The decision: may this message of this host reach rspregistrar? No sockets, no clocks: `now_ms` comes in. */
#pragma once
#include "message.h"

#define MAX_PEER_ADDRESSES 8

/* Why a message was dropped. */
enum verdict {
	PASSED,
	STRANGER, /* the rules name no such host */
	UNCONFIRMED, /* no address of the association is confirmed (RFC 9260, section 5.4) */
	MALFORMED, /* nothing that rspregistrar expects */
	HANDLE_TOO_LONG, /* it aborts */
	ADDRESSES, /* not exactly one with TCP or UDP: it aborts */
	ZERO_IDENTIFIER, /* it ends by SIGSEGV */
	NOT_ELEMENT, /* the host registers nothing */
	HANDLE_NOT_ALLOWED,
	ADDRESS_NOT_ALLOWED,
	POLICY, /* another one than the pool's */
	TRANSPORT, /* another one than the pool's */
	LIFE, /* longer than the rules let it be */
	TOO_MANY, /* registrations of this host */
	NOT_ITS_OWN, /* the identifier is another host's pool element */
	REPORT, /* not allowed, or too many a second */
	NOT_FOLLOWER, /* ENRP of a host that may not read it */
	ENRP_CHANGE, /* ENRP that changes something, of a follower */
	SENDER_TAKEN, /* a follower under a registrar's identifier */
	VERDICTS,
};

/* As it stands in counters. */
extern const char *const verdict_names[VERDICTS];

/* The other side of an association: those of its addresses that are confirmed. */
struct peer {
	uint64_t association; /* never 0 */
	struct address addresses[MAX_PEER_ADDRESSES];
	size_t count;
};

struct gate;

/* It owns the rules from then on. NULL: no memory. */
struct gate *gate_new(struct rules *rules);
void gate_free(struct gate *gate);
void gate_set_rules(struct gate *gate, struct rules *rules);
enum verdict gate_judge(struct gate *gate, uint64_t now_ms, const struct peer *peer, uint32_t ppid, const uint8_t *data,
			size_t length);
/* The association ended, and with it its registrations. */
void gate_forget(struct gate *gate, uint64_t association);
/* Count what was dropped; kept for MAX_HOSTS hosts, of further ones together under the address ::. */
void gate_count(struct gate *gate, const struct peer *peer, enum verdict verdict);
/* Return true, with the host, reason and number of one counter that changed since it was returned last; false when none did. */
bool gate_next_changed(struct gate *gate, struct address *host, enum verdict *verdict, uint64_t *dropped);
/* How many registrations of the host are counted, and how many are known of all. */
unsigned gate_registrations(const struct gate *gate, const struct address *host);
size_t gate_elements(const struct gate *gate);
