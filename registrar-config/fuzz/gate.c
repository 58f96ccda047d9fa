/*
 * A fuzzer (libFuzzer) of all that the gate decides: the rules file, messages of several hosts, time, associations that end.
 * The input begins with rules, up to a byte 0; then come records: host, payload protocol, time, length, message.
 *
 * It looks for more than steps out of bounds: what passes has no handle above 32 bytes and no identifier 0, comes of a host
 * that the rules name; no follower's message passes that changes something, or that has the identifier of a registrar or of
 * another follower; counters and bounds hold. The gate's tables are small here (the Makefile), so their places are reused.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gate.h"

#define MUST(what)                                                                                                     \
	do {                                                                                                           \
		if (!(what)) {                                                                                         \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);                             \
			abort();                                                                                       \
		}                                                                                                      \
	} while (0)

#define RECORD_BYTES 6
#define HOSTS 16 /* more than places: MAX_HOSTS in the Makefile */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char fixed_rules[] = "registrar 10.0.0.0\nfollower 10.0.0.1\nelement 10.0.0.2 handles a,sip-* most 2 reports 3\n"
				  "element 10.0.0.3 handles * addresses 10.0.0.0/8\nuser 10.0.0.4\nfollower 10.0.0.5\npool sip-* policy 1 transport udp\nlife 60\nend\n";

/* The limits of fixed_rules: */
#define LIFE_MS 60000
#define MOST 2 /* registrations of 10.0.0.2 */
#define REGISTRARS_MOST 8 /* identifiers: with those of two followers they have room in the gate */

/* The ENRP identifiers that were let through last. */
struct senders {
	struct {
		uint32_t identifier;
		uint64_t at_ms;
	} registrars[REGISTRARS_MOST], followers[HOSTS];
	size_t registrar_count;
	bool is_full;
};

/* A follower has neither the identifier of a registrar that lives, nor the present one of another follower. */
static void check_sender(struct senders *senders, uint64_t now_ms, uint8_t host, uint32_t identifier)
{
	size_t i;

	if (senders->is_full)
		return;
	if (host == 0) {
		for (i = 0; i < senders->registrar_count && senders->registrars[i].identifier != identifier; i++)
			;
		senders->is_full = i == REGISTRARS_MOST;
		if (senders->is_full)
			return;
		senders->registrar_count += i == senders->registrar_count;
		senders->registrars[i].identifier = identifier;
		senders->registrars[i].at_ms = now_ms;
		for (i = 0; i < HOSTS; i++) /* it is the registrar's now */
			if (senders->followers[i].identifier == identifier)
				senders->followers[i].identifier = 0;
		return;
	}
	for (i = 0; i < senders->registrar_count; i++)
		MUST(senders->registrars[i].identifier != identifier || now_ms - senders->registrars[i].at_ms >= LIFE_MS);
	for (i = 0; i < HOSTS; i++)
		MUST(i == host || senders->followers[i].identifier != identifier || now_ms - senders->followers[i].at_ms >= LIFE_MS);
	senders->followers[host].identifier = identifier;
	senders->followers[host].at_ms = now_ms;
}

static void check_passed(const struct rules *rules, const struct peer *peer, uint32_t ppid, const uint8_t *bytes, size_t length)
{
	const unsigned roles = peer->count ? rules_roles(rules, &peer->addresses[0]) | rules_roles(rules, &peer->addresses[peer->count - 1]) : 0;
	struct message message;
	struct element element = { 0 };

	MUST(roles != 0);
	MUST(message_read(ppid, bytes, length, &message) == FORM_RIGHT);
	MUST(message.element.handle_length <= MAX_HANDLE);
	MUST(ppid != PPID_ENRP || message.sender != 0);
	while (message.table && message_next(&message, &element))
		MUST(element.handle_length <= MAX_HANDLE && element.identifier != 0 && element.home != 0);
	if (ppid == PPID_ENRP && !(roles & ROLE_REGISTRAR))
		MUST(message.type != ENRP_UPDATE && message.type != ENRP_TAKEOVER_SERVER && message.type != ENRP_INIT_TAKEOVER &&
		     message.table_length == 0 && message.servers == 0);
	if (ppid == PPID_ASAP && message.type != ASAP_HANDLE_RESOLUTION && message.type != ASAP_UNREACHABLE)
		MUST(roles & ROLE_ELEMENT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *end = memchr(data, 0, size);
	const size_t rules_length = end ? (size_t)(end - data) : 0;
	uint64_t now_ms = 1000, dropped, passed = 0, judged = 0, told = 0;
	struct address address;
	enum verdict verdict;
	struct rules *rules;
	struct gate *gate;
	struct senders senders = { 0 };
	bool is_used[256] = { false }, is_fixed = false;
	char problem[256], *text = malloc(rules_length + sizeof(fixed_rules));

	memcpy(text, data, rules_length);
	text[rules_length] = '\0';
	rules = rules_read(text, problem, sizeof(problem));
	if (!rules) {
		MUST(strlen(problem) < sizeof(problem));
		memcpy(text, fixed_rules, sizeof(fixed_rules));
		rules = rules_read(text, problem, sizeof(problem));
		MUST(rules);
		is_fixed = true;
	}
	free(text);
	gate = gate_new(rules);
	data += end ? rules_length + 1 : 0;
	size -= end ? rules_length + 1 : 0;
	while (size >= RECORD_BYTES) {
		const uint8_t host = data[0] % HOSTS;
		const uint32_t ppid = data[1] % 8 ? data[1] % 2 ? PPID_ASAP : PPID_ENRP : data[1];
		const size_t length = data[5] < size - RECORD_BYTES ? data[5] : size - RECORD_BYTES;
		struct peer peer = { .association = (uint64_t)data[3] + 1, .count = data[0] / 128 + (host != 7) };
		uint8_t *message = malloc(length + 1); /* of its own, so that each step beyond it is seen */

		peer.addresses[0] = address_v4((const uint8_t[]){ 10, 0, 0, host });
		peer.addresses[1] = address_v4((const uint8_t[]){ 10, 0, 1, host });
		now_ms += (uint64_t)data[2] * 100;
		is_used[data[3]] = true;
		if (data[4] == 255)
			gate_forget(gate, peer.association);
		memcpy(message, data + RECORD_BYTES, length);
		verdict = gate_judge(gate, now_ms, &peer, ppid, message, length);
		MUST(verdict < VERDICTS);
		judged++;
		if (verdict == PASSED) {
			passed++;
			check_passed(rules, &peer, ppid, message, length);
			if (is_fixed && ppid == PPID_ENRP)
				check_sender(&senders, now_ms, host, (uint32_t)message[4] << 24 | (uint32_t)message[5] << 16 | (uint32_t)message[6] << 8 | message[7]);
		} else {
			gate_count(gate, &peer, verdict);
		}
		free(message);
		address = address_v4((const uint8_t[]){ 10, 0, 0, 2 });
		MUST(!is_fixed || gate_registrations(gate, &address) <= MOST);
		MUST(gate_elements(gate) <= MAX_ELEMENTS);
		data += RECORD_BYTES + length;
		size -= RECORD_BYTES + length;
	}
	while (gate_next_changed(gate, &address, &verdict, &dropped))
		told += dropped;
	MUST(told == judged - passed);
	for (uint64_t association = 1; association <= 256; association++)
		if (is_used[association - 1])
			gate_forget(gate, association);
	for (uint8_t host = 0; host < HOSTS; host++) {
		address = address_v4((const uint8_t[]){ 10, 0, 0, host });
		MUST(gate_registrations(gate, &address) == 0);
	}
	gate_free(gate);
	return 0;
}
