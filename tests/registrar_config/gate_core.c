/* The decisions of the gate, without sockets: messages that no attack on a real rspregistrar shows, and bounds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gate.h"

#define MUST(what)                                                                                                     \
	do {                                                                                                           \
		if (!(what)) {                                                                                         \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);                             \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

static struct rules *read_rules(const char *text, char *problem)
{
	char *copy = strdup(text);
	struct rules *rules = rules_read(copy, problem, 256);

	free(copy);
	return rules;
}

static const char rules_text[] = "registrar 10.0.0.1\nelement 10.0.0.2 handles pool*,a%20b most 2 reports 2\nelement 10.0.0.3 handles *\nfollower 10.0.0.4\nfollower 10.0.0.5\npool kind* policy 1 transport udp\nlife 60\nend\n";

static const char *const wrong_rules[] = {
	"", "registrar", "registrar 10.0.0.1/8", "registrar 10.0.0.300", "registrar 10.0.0.1 most 3", "registrars 10.0.0.1", "element 10.0.0.1",
	"element 10.0.0.1 handles a*b", "element 10.0.0.1 handles a,,b", "element 10.0.0.1 handles %2", "element 10.0.0.1 handles a handles b",
	"element 10.0.0.1 handles 123456789012345678901234567890123", "element 10.0.0.1 handles a most 0", "registrar 10.0.0.1\nlife 0",
	"registrar 10.0.0.1\nlife 1 2", "registrar 10.0.0.1 reports 1001", "registrar ::1/129", "user 10.0.0.1\nend",
	"registrar 10.0.0.1", "registrar 10.0.0.1\nend 1", "registrar 10.0.0.1\nend\nend", "registrar 10.0.0.1\nend\nuser 10.0.0.1",
	"registrar 10.0.0.1\npool a\nend", "registrar 10.0.0.1\npool\nend", "registrar 10.0.0.1\npool a policy 0\nend",
	"registrar 10.0.0.1\npool a policy 0x100000000\nend", "registrar 10.0.0.1\npool a policy 1 policy 2\nend",
	"registrar 10.0.0.1\npool a transport dccp\nend", "registrar 10.0.0.1\npool a transport\nend",
};

static size_t registration(uint8_t *to, const char *handle, uint32_t identifier, uint32_t life_ms, uint8_t protocol, int addresses, uint8_t host)
{
	const size_t length = strlen(handle), padded = (length + 3) / 4 * 4, transport = 8 + 8 * (size_t)addresses;
	const size_t element = 16 + transport + 8;
	uint8_t *at = to;
	int i;

	memset(to, 0, 512);
	*at = 1;
	at[3] = (uint8_t)(4 + 4 + padded + element);
	at += 4;
	at[1] = 9;
	at[3] = (uint8_t)(4 + length);
	memcpy(at + 4, handle, length);
	at += 4 + padded;
	at[1] = 0x0a;
	at[3] = (uint8_t)element;
	at[7] = (uint8_t)identifier;
	at[12] = (uint8_t)(life_ms >> 24);
	at[13] = (uint8_t)(life_ms >> 16);
	at[14] = (uint8_t)(life_ms >> 8);
	at[15] = (uint8_t)life_ms;
	at += 16;
	at[1] = protocol;
	at[3] = (uint8_t)transport;
	at[5] = 80;
	for (i = 0; i < addresses; i++) {
		uint8_t *address = at + 8 + 8 * i;

		address[1] = 1;
		address[3] = 8;
		memcpy(address + 4, (uint8_t[]){ 10, 0, 0, host }, 4);
	}
	at += transport;
	at[1] = 8;
	at[3] = 8;
	at[7] = 1;
	return (size_t)(at + 8 - to);
}

/* An update of a registrar about an element over UDP: of a registration's parameters, with a home. */
static size_t update(uint8_t *to, uint8_t action, const char *handle, uint32_t identifier, uint32_t life_ms, uint8_t host)
{
	uint8_t registered[512];
	const size_t length = registration(registered, handle, identifier, life_ms, 6, 1, host), handle_bytes = (strlen(handle) + 3) / 4 * 4;

	memset(to, 0, 16);
	to[0] = 4;
	to[3] = (uint8_t)(length + 12);
	to[7] = to[11] = 1; /* sender, receiver */
	to[13] = action;
	memcpy(to + 16, registered + 4, length - 4);
	to[16 + 4 + handle_bytes + 11] = 1; /* home */
	return length + 12;
}

/* The same, registered from another address than the element's. */
static size_t update_from(uint8_t *to, uint8_t action, const char *handle, uint32_t identifier, uint32_t life_ms, uint8_t user, uint8_t asap)
{
	const size_t length = update(to, action, handle, identifier, life_ms, user), handle_bytes = (strlen(handle) + 3) / 4 * 4;

	memcpy(to + length, (uint8_t[]){ 0, 4, 0, 16, 0x0f, 0x17, 0, 0, 0, 1, 0, 8, 10, 0, 0, asap }, 16);
	to[3] += 16;
	to[16 + 4 + handle_bytes + 3] += 16;
	return length + 16;
}

/* A follower's request for the handle table. */
static size_t table_request(uint8_t *to, uint32_t sender)
{
	memcpy(to, (uint8_t[]){ 2, 0, 0, 12, (uint8_t)(sender >> 24), (uint8_t)(sender >> 16), (uint8_t)(sender >> 8), (uint8_t)sender, 0, 0, 0, 0 }, 12);
	return 12;
}

static struct peer host(uint8_t last, uint64_t association)
{
	struct peer peer = { .association = association, .count = 1 };

	peer.addresses[0] = address_v4((const uint8_t[]){ 10, 0, 0, last });
	return peer;
}

int main(void)
{
	char problem[256];
	uint8_t bytes[512];
	struct peer second = host(2, 1), third = host(3, 2), stranger = host(9, 3), nobody = { .association = 4 };
	struct peer first = host(1, 5), follower = host(4, 6), liar = host(5, 7);
	struct gate *gate;
	size_t i, length, before;

	for (i = 0; i < sizeof(wrong_rules) / sizeof(*wrong_rules); i++)
		MUST(read_rules(wrong_rules[i], problem) == NULL);
	gate = gate_new(read_rules(rules_text, problem));

	length = registration(bytes, "pool", 1, 30000, 6, 1, 2);
	MUST(gate_judge(gate, 0, &second, PPID_ASAP, bytes, length) == PASSED);
	MUST(gate_judge(gate, 0, &stranger, PPID_ASAP, bytes, length) == STRANGER);
	MUST(gate_judge(gate, 0, &nobody, PPID_ASAP, bytes, length) == UNCONFIRMED);
	MUST(gate_judge(gate, 0, &second, 13, bytes, length) == MALFORMED);
	for (i = 0; i < length; i++)
		MUST(gate_judge(gate, 0, &second, PPID_ASAP, bytes, i) == MALFORMED);
	bytes[4] = 0x40; /* rspregistrar takes types without their two high bits */
	MUST(gate_judge(gate, 0, &second, PPID_ASAP, bytes, length) == MALFORMED);

	/* One address with TCP and UDP, any number with SCTP. */
	MUST(gate_judge(gate, 0, &second, PPID_ASAP, bytes, registration(bytes, "pool", 1, 30000, 6, 2, 2)) == ADDRESSES);
	MUST(gate_judge(gate, 0, &second, PPID_ASAP, bytes, registration(bytes, "pool", 1, 30000, 5, 0, 2)) == ADDRESSES);
	MUST(gate_judge(gate, 0, &second, PPID_ASAP, bytes, registration(bytes, "pool", 1, 30000, 4, 2, 2)) == PASSED);
	MUST(gate_judge(gate, 0, &second, PPID_ASAP, bytes, registration(bytes, "pool", 0, 30000, 6, 1, 2)) == ZERO_IDENTIFIER);
	MUST(gate_judge(gate, 0, &second, PPID_ASAP, bytes, registration(bytes, "a b", 5, 30000, 6, 1, 3)) == ADDRESS_NOT_ALLOWED);
	MUST(gate_judge(gate, 0, &second, PPID_ASAP, bytes, registration(bytes, "other", 5, 30000, 6, 1, 2)) == HANDLE_NOT_ALLOWED);
	MUST(gate_judge(gate, 0, &second, PPID_ASAP, bytes, registration(bytes, "pool", 5, 60001, 6, 1, 2)) == LIFE);
	/* A pool's elements are of one kind: policy, transport, and whether it has the control channel. */
	length = registration(bytes, "kind", 5, 30000, 6, 1, 3);
	MUST(gate_judge(gate, 0, &third, PPID_ASAP, bytes, length) == PASSED);
	bytes[length - 1] = 2;
	MUST(gate_judge(gate, 0, &third, PPID_ASAP, bytes, length) == POLICY);
	bytes[length - 1] = 1;
	bytes[length - 17] = 1;
	MUST(gate_judge(gate, 0, &third, PPID_ASAP, bytes, length) == TRANSPORT);
	MUST(gate_judge(gate, 0, &third, PPID_ASAP, bytes, registration(bytes, "kind", 5, 30000, 5, 1, 3)) == TRANSPORT);
	MUST(gate_judge(gate, 0, &third, PPID_ASAP, bytes, registration(bytes, "kin", 6, 30000, 5, 1, 3)) == PASSED);
	gate_forget(gate, third.association);
	/* "*" takes no sentinel's handle. */
	MUST(gate_judge(gate, 0, &third, PPID_ASAP, bytes, registration(bytes, "rspdns-sentinel-1", 5, 30000, 6, 1, 3)) == HANDLE_NOT_ALLOWED);

	/* An element is its host's until its life ended. */
	MUST(gate_judge(gate, 0, &third, PPID_ASAP, bytes, registration(bytes, "pool", 1, 30000, 6, 1, 3)) == NOT_ITS_OWN);
	gate_forget(gate, second.association);
	MUST(gate_registrations(gate, &second.addresses[0]) == 0);
	MUST(gate_judge(gate, 0, &third, PPID_ASAP, bytes, registration(bytes, "pool", 1, 30000, 6, 1, 3)) == NOT_ITS_OWN);
	MUST(gate_judge(gate, 40000, &third, PPID_ASAP, bytes, registration(bytes, "pool", 1, 30000, 6, 1, 3)) == PASSED);
	/* Its host takes it up again, and gives it up. */
	gate_forget(gate, third.association);
	MUST(gate_judge(gate, 40000, &third, PPID_ASAP, bytes, registration(bytes, "pool", 1, 30000, 6, 1, 3)) == PASSED);
	memcpy(bytes, (const uint8_t[]){ 2, 0, 0, 20, 0, 9, 0, 8, 'p', 'o', 'o', 'l', 0, 14, 0, 8, 0, 0, 0, 1 }, 20);
	before = gate_elements(gate);
	MUST(gate_judge(gate, 40000, &third, PPID_ASAP, bytes, 20) == PASSED);
	MUST(gate_elements(gate) == before - 1);
	/* A registrar says that an element ended: it is its host's until its life ends, too. */
	MUST(gate_judge(gate, 40000, &first, PPID_ENRP, bytes, update(bytes, UPDATE_ADD, "pool", 1, 30000, 2)) == PASSED);
	MUST(gate_judge(gate, 40000, &first, PPID_ENRP, bytes, update(bytes, UPDATE_DELETE, "pool", 1, 30000, 2)) == PASSED);
	MUST(gate_judge(gate, 40000, &third, PPID_ASAP, bytes, registration(bytes, "pool", 1, 30000, 6, 1, 3)) == NOT_ITS_OWN);
	MUST(gate_judge(gate, 80000, &third, PPID_ASAP, bytes, registration(bytes, "pool", 1, 30000, 6, 1, 3)) == PASSED);
	gate_forget(gate, third.association);
	/* A lying registrar: it takes nothing from the host that registered an element here. */
	MUST(gate_judge(gate, 90000, &second, PPID_ASAP, bytes, registration(bytes, "pool", 6, 5000, 6, 1, 2)) == PASSED);
	MUST(gate_judge(gate, 90000, &first, PPID_ENRP, bytes, update(bytes, UPDATE_ADD, "pool", 6, 60000, 66)) == PASSED);
	MUST(gate_judge(gate, 90000, &first, PPID_ENRP, bytes, update(bytes, UPDATE_ADD, "pool", 6, 60000, 3)) == PASSED);
	MUST(gate_judge(gate, 90000, &first, PPID_ENRP, bytes, update_from(bytes, UPDATE_ADD, "pool", 6, 60000, 2, 1)) == PASSED);
	MUST(gate_judge(gate, 90000, &first, PPID_ENRP, bytes, update_from(bytes, UPDATE_DELETE, "pool", 6, 60000, 2, 1)) == PASSED);
	memcpy(bytes, (const uint8_t[]){ 8, 0, 0, 20, 0, 9, 0, 8, 'p', 'o', 'o', 'l', 0, 14, 0, 8, 0, 0, 0, 6 }, 20);
	MUST(gate_judge(gate, 90000, &second, PPID_ASAP, bytes, 20) == PASSED);
	MUST(gate_judge(gate, 90000, &third, PPID_ASAP, bytes, 20) == NOT_ITS_OWN);
	MUST(gate_judge(gate, 91000, &second, PPID_ASAP, bytes, registration(bytes, "pool", 6, 5000, 6, 1, 2)) == PASSED);
	MUST(gate_judge(gate, 91000, &third, PPID_ASAP, bytes, registration(bytes, "pool", 6, 5000, 6, 1, 3)) == NOT_ITS_OWN);
	/* It can't say beforehand that an element is of a host that may not register it, or of another than that of its address. */
	MUST(gate_judge(gate, 91000, &first, PPID_ENRP, bytes, update(bytes, UPDATE_ADD, "pool", 8, 60000, 66)) == PASSED);
	MUST(gate_judge(gate, 91000, &first, PPID_ENRP, bytes, update_from(bytes, UPDATE_ADD, "pool", 9, 60000, 2, 3)) == PASSED);
	MUST(gate_judge(gate, 91000, &second, PPID_ASAP, bytes, registration(bytes, "pool", 8, 5000, 6, 1, 2)) == PASSED);
	gate_forget(gate, second.association);
	MUST(gate_judge(gate, 91000, &second, PPID_ASAP, bytes, registration(bytes, "pool", 9, 5000, 6, 1, 2)) == PASSED);
	gate_forget(gate, second.association);
	/* An element elsewhere: it is its host's, and anybody's if registrars tell of different hosts. */
	MUST(gate_judge(gate, 91000, &first, PPID_ENRP, bytes, update(bytes, UPDATE_ADD, "pool", 10, 20000, 3)) == PASSED);
	MUST(gate_judge(gate, 91000, &second, PPID_ASAP, bytes, registration(bytes, "pool", 10, 5000, 6, 1, 2)) == NOT_ITS_OWN);
	MUST(gate_judge(gate, 91000, &first, PPID_ENRP, bytes, update(bytes, UPDATE_ADD, "pool", 10, 20000, 2)) == PASSED);
	MUST(gate_judge(gate, 91000, &first, PPID_ENRP, bytes, update(bytes, UPDATE_DELETE, "pool", 10, 20000, 2)) == PASSED);
	MUST(gate_judge(gate, 91000, &second, PPID_ASAP, bytes, registration(bytes, "pool", 10, 5000, 6, 1, 2)) == PASSED);
	MUST(gate_judge(gate, 91000, &third, PPID_ASAP, bytes, registration(bytes, "pool", 10, 5000, 6, 1, 3)) == NOT_ITS_OWN);
	gate_forget(gate, second.association);
	/* A host that comes and goes with ever new identifiers is remembered for some of them. */
	before = gate_elements(gate);
	for (i = 1; i <= 255; i++) {
		MUST(gate_judge(gate, 120000, &third, PPID_ASAP, bytes, registration(bytes, "pools", (uint32_t)i, 30000, 6, 1, 3)) == PASSED);
		gate_forget(gate, third.association);
	}
	MUST(gate_elements(gate) <= before + 64);
	MUST(gate_judge(gate, 120000, &second, PPID_ASAP, bytes, registration(bytes, "pools", 1, 30000, 6, 1, 2)) == NOT_ITS_OWN);
	MUST(gate_judge(gate, 120000, &second, PPID_ASAP, bytes, registration(bytes, "pools", 255, 30000, 6, 1, 2)) == PASSED);
	MUST(gate_registrations(gate, &third.addresses[0]) == 0);

	/* A follower that invents identifiers drives out its own only; a registrar's identifier is never a follower's. */
	MUST(gate_judge(gate, 120000, &follower, PPID_ENRP, bytes, table_request(bytes, 7)) == PASSED);
	for (i = 0; i < 3000; i++)
		MUST(gate_judge(gate, 120000, &liar, PPID_ENRP, bytes, table_request(bytes, (uint32_t)(1000 + i))) == PASSED);
	MUST(gate_judge(gate, 120001, &liar, PPID_ENRP, bytes, table_request(bytes, 7)) == SENDER_TAKEN);
	MUST(gate_judge(gate, 120001, &liar, PPID_ENRP, bytes, table_request(bytes, 1)) == SENDER_TAKEN);
	MUST(gate_judge(gate, 120001, &follower, PPID_ENRP, bytes, table_request(bytes, 7)) == PASSED);
	/* Registrars that start again have ever new identifiers: the old ones leave room. */
	for (i = 0; i < 3000; i++)
		MUST(gate_judge(gate, 120001 + 100 * i, &first, PPID_ENRP, bytes, table_request(bytes, (uint32_t)(10000 + i))) == PASSED);
	MUST(gate_judge(gate, 500000, &follower, PPID_ENRP, bytes, table_request(bytes, 8)) == PASSED);

	/* Registrations of one host, and that they are given back. */
	for (i = 1; i <= 2; i++)
		MUST(gate_judge(gate, 550000, &second, PPID_ASAP, bytes, registration(bytes, "pool", (uint32_t)i, 30000, 6, 1, 2)) == PASSED);
	length = registration(bytes, "pool", 3, 30000, 6, 1, 2);
	MUST(gate_judge(gate, 550000, &second, PPID_ASAP, bytes, length) == TOO_MANY);
	MUST(gate_judge(gate, 590000, &second, PPID_ASAP, bytes, length) == PASSED);
	MUST(gate_registrations(gate, &second.addresses[0]) == 1);

	/* Two reports a second. */
	memcpy(bytes, (const uint8_t[]){ 9, 0, 0, 20, 0, 9, 0, 8, 'p', 'o', 'o', 'l', 0, 14, 0, 8, 0, 0, 0, 1 }, 20);
	for (i = 0; i < 10; i++)
		MUST(gate_judge(gate, 590000, &second, PPID_ASAP, bytes, 20) == (i < 2 ? PASSED : REPORT));
	MUST(gate_judge(gate, 590500, &second, PPID_ASAP, bytes, 20) == PASSED);
	MUST(gate_judge(gate, 590500, &third, PPID_ASAP, bytes, 20) == REPORT);

	/* Any number of hosts, one after the other: each gets its place, and gives it back. */
	gate_set_rules(gate, read_rules("registrar 10.0.0.1\nelement 10.0.0.0/8 handles pool most 2\nend\n", problem));
	for (i = 0; i < 10000; i++) {
		struct peer many = { .association = 100 + i, .count = 1 };
		const uint8_t address[] = { 10, 9, (uint8_t)(i >> 8), (uint8_t)i };

		many.addresses[0] = address_v4(address);
		length = registration(bytes, "pool", 7, 30000, 6, 1, 2);
		memcpy(bytes + length - 8 - sizeof(address), address, sizeof(address));
		memcpy(bytes + 16, address + 2, 2); /* each with an identifier of its own: it stays that host's */
		MUST(gate_judge(gate, 700000, &many, PPID_ASAP, bytes, length) == PASSED);
		gate_forget(gate, many.association);
	}

	/* Any number of elements elsewhere: those that are registered here keep their places. */
	gate_free(gate);
	gate = gate_new(read_rules("registrar 10.0.0.1\nelement 10.0.0.0/8 handles pool\nend\n", problem));
	MUST(gate_judge(gate, 800000, &second, PPID_ASAP, bytes, registration(bytes, "pool", 1, 30000, 6, 1, 2)) == PASSED);
	length = update(bytes, UPDATE_ADD, "pool", 7, 60000, 3);
	for (i = 0; i < 70000; i++) {
		bytes[29] = (uint8_t)(1 + (i >> 16)); /* identifier */
		bytes[30] = (uint8_t)(i >> 8);
		bytes[31] = (uint8_t)i;
		MUST(gate_judge(gate, 800000, &first, PPID_ENRP, bytes, length) == PASSED);
	}
	MUST(gate_judge(gate, 800000, &second, PPID_ASAP, bytes, registration(bytes, "pool", 2, 30000, 6, 1, 2)) == PASSED);
	for (i = 1; i <= 2; i++)
		MUST(gate_judge(gate, 800000, &third, PPID_ASAP, bytes, registration(bytes, "pool", (uint32_t)i, 30000, 6, 1, 3)) == NOT_ITS_OWN);

	/* Counters of any number of hosts. */
	for (i = 0; i < 5000; i++) {
		struct peer many = { .association = 1, .count = 1 };

		memcpy(many.addresses[0].bytes, &i, sizeof(i));
		gate_count(gate, &many, STRANGER);
	}
	struct address told;
	enum verdict verdict;
	uint64_t dropped, sum = 0;
	while (gate_next_changed(gate, &told, &verdict, &dropped))
		sum += verdict == STRANGER ? dropped : 0;
	MUST(sum == 5000);
	gate_free(gate);
	puts("right");
	return 0;
}
