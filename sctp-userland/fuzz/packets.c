/* Fuzzer of packet input: crafted packets, and real ones changed on their way, around living associations. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../protocol.h"
#include "../sctpd/calls.h"
#include "../sctpd/packets.h"
#include "../sctpd/sockets.h"
#include "world.h"

#define MANY_PORT 5000
#define ONE_PORT 5001
#define BYSTANDER_PORT 5002
#define RECORDS_MAX 40
#define IP_HEADER 20
#define COMMON_HEADER 12
#define INIT 1
#define INIT_ACK 2
#define NO_HEARTBEATS 2
#define PATIENCE_S 120 /* retransmissions that find the wire full of what was hostile */

enum { CRAFT, CHANGE, WIRE, PROGRAM, DATAGRAM, SIX, KINDS };
/* The last three nobody attacks: nothing that is done to the others may reach them. */
enum { SENDER_MANY, LISTENER_MANY, SENDER_ONE, LISTENER_ONE, ACCEPTED, ATTACKED, BYSTANDER = ATTACKED, BYSTANDER_LISTENER,
       BYSTANDER_ACCEPTED, SOCKETS };

static int held[SOCKETS];

/* The ends of the associations of both styles, as seen on the wire: where a packet to each end must go. */
static struct end {
	uint16_t port, peer_port;
	uint32_t tag, tsn; /* what packets to it carry: its tag, and its peer's first TSN */
} ends[4];

/* The numbers of crafted packets, and of those that were taken as an association's own. */
static unsigned long crafted, reached;

int LLVMFuzzerInitialize(int *argument_count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t read32(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return ntohl(value);
}

static void write32(uint8_t *at, uint32_t value)
{
	value = htonl(value);
	memcpy(at, &value, sizeof(value));
}

/* Learn tags and first TSNs from INIT and INIT ACK. */
static void watch(const uint8_t *sctp, int length)
{
	uint16_t from = (uint16_t)(sctp[0] << 8 | sctp[1]), to = (uint16_t)(sctp[2] << 8 | sctp[3]);
	int pair = from == ONE_PORT || to == ONE_PORT ? 2 : 0, listens = from == MANY_PORT || from == ONE_PORT;

	if (from == BYSTANDER_PORT || to == BYSTANDER_PORT || length < COMMON_HEADER + 20 || (sctp[COMMON_HEADER] != INIT && sctp[COMMON_HEADER] != INIT_ACK))
		return;
	ends[pair + listens].port = from;
	ends[pair + listens].peer_port = to;
	ends[pair + listens].tag = read32(sctp + COMMON_HEADER + 4);
	ends[pair + !listens].tsn = read32(sctp + COMMON_HEADER + 16);
}

static int make_call(int operation, struct sctp_socket *s, int32_t first, int32_t second, const void *address, size_t address_length,
		     const void *data, size_t length)
{
	static char result[ADDRESSES_MAX + 65536];
	struct request request = { .version = PROTOCOL_VERSION, .operation = (uint16_t)operation, .argument = { first, second },
				   .address_length = (uint32_t)address_length, .data_length = (uint32_t)length };
	struct call call = { .request = &request, .address = address, .data = data, .result = result,
			     .passed = -1, .descriptor = -1 };
	static const struct ucred caller = { .pid = 1 };

	call.caller = &caller;
	call_run(&call, s);
	world_turn(1, 1);
	return call.descriptor;
}

static struct sctp_socket *open_one(int which, int type)
{
	held[which] = make_call(OP_SOCKET, NULL, AF_INET, type, NULL, 0, NULL, 0);
	return socket_of(held[which]);
}

static void connect_one_to_one(uint16_t port, int sending, int listening, int accepted)
{
	struct sockaddr_in name = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(0x0a000001) };
	struct sctp_socket *listener = open_one(listening, SOCK_STREAM), *sender = open_one(sending, SOCK_STREAM);
	struct inbound told;

	make_call(OP_BIND, listener, 0, 0, &name, sizeof(name), NULL, 0);
	make_call(OP_LISTEN, listener, 5, 0, NULL, 0, NULL, 0);
	make_call(OP_CONNECT, sender, 0, 0, &name, sizeof(name), NULL, 0);
	if (recv(held[listening], &told, sizeof(told), MSG_DONTWAIT) != sizeof(told))
		abort(); /* what an earlier input left behind is in the way */
	held[accepted] = make_call(OP_ACCEPT, listener, 0, 0, NULL, 0, NULL, 0);
}

static void connect_one_to_many(void)
{
	uint8_t all_events[14] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
	struct sockaddr_in name = { .sin_family = AF_INET, .sin_port = htons(MANY_PORT), .sin_addr.s_addr = htonl(0x0a000001) };
	struct sctp_socket *listener = open_one(LISTENER_MANY, SOCK_SEQPACKET), *sender = open_one(SENDER_MANY, SOCK_SEQPACKET);

	make_call(OP_SETSOCKOPT, listener, IPPROTO_SCTP, LX_EVENTS, NULL, 0, all_events, sizeof(all_events));
	make_call(OP_SETSOCKOPT, sender, IPPROTO_SCTP, LX_EVENTS, NULL, 0, all_events, sizeof(all_events));
	make_call(OP_BIND, listener, 0, 0, &name, sizeof(name), NULL, 0);
	make_call(OP_LISTEN, listener, 5, 0, NULL, 0, NULL, 0);
	make_call(OP_CONNECT, sender, 0, 0, &name, sizeof(name), NULL, 0);
	world_turn(1, 1);
}

static void set_up(void)
{
	struct lx_paddrparams silent = { .spp_flags = NO_HEARTBEATS };
	int i;

	wire_watcher = watch;
	connect_one_to_many();
	connect_one_to_one(ONE_PORT, SENDER_ONE, LISTENER_ONE, ACCEPTED);
	connect_one_to_one(BYSTANDER_PORT, BYSTANDER, BYSTANDER_LISTENER, BYSTANDER_ACCEPTED);
	for (i = 0; i < 4; i++)
		if (ends[i].tag == 0)
			abort();
	/* So that none of its packets is on the wire while packets there are changed. */
	make_call(OP_SETSOCKOPT, socket_of(held[BYSTANDER]), IPPROTO_SCTP, LX_PEER_ADDR_PARAMS, NULL, 0, &silent, sizeof(silent));
	make_call(OP_SETSOCKOPT, socket_of(held[BYSTANDER_ACCEPTED]), IPPROTO_SCTP, LX_PEER_ADDR_PARAMS, NULL, 0, &silent,
		  sizeof(silent));
	world_turn(1, 1);
}

static void talk(int from, int to)
{
	static const char said[] = "still here";
	static char taken[MESSAGE_MAX + 1024];
	ssize_t length = -1;
	int i;

	make_call(OP_SEND, socket_of(held[from]), 0, 0, NULL, 0, said, sizeof(said));
	for (i = 0; i < PATIENCE_S && length < 0; i++) {
		length = recv(held[to], taken, sizeof(taken), MSG_DONTWAIT);
		world_turn(length < 0 ? 1000 : 1, 1);
	}
	if (length != (ssize_t)(sizeof(struct inbound) + sizeof(said)) || memcmp(taken + sizeof(struct inbound), said, sizeof(said)) != 0)
		abort();
}

/* A packet that would be dropped at the door is one in eight: the deep code is behind it. Flags: bits 0 and 1 which end; bits 2 to 4
 * the tag: 0 zero, 1 reflected, others right; bits 5 to 7: 0 checksum as given, 1 TSNs as given, 2 only the first chunk's TSN right. */
static void craft(struct input *input)
{
	static uint8_t datagram[IP_HEADER + COMMON_HEADER + 1500] = { 0x45 };
	uint8_t flags = input_byte(input), *sctp = datagram + IP_HEADER;
	const struct end *end = &ends[flags & 3];
	enum { CHECKSUM, TSNS, OTHER_TSNS } as_given = flags >> 5;
	int tag = flags >> 2 & 7;
	struct sctpstat before, after;
	size_t length = input_byte(input) * 6U;
	size_t at;

	length = input_bytes(input, sctp + COMMON_HEADER, length < 1500 ? length : 1500);
	write32(datagram + 12, 0x0a000001);
	write32(datagram + 16, 0x0a000001);
	write32(sctp, (uint32_t)end->peer_port << 16 | end->port);
	write32(sctp + 4, tag == 0 ? 0 : tag == 1 ? ends[(flags & 3) ^ 1].tag : end->tag);
	for (at = COMMON_HEADER; as_given != TSNS && at + 8 <= COMMON_HEADER + length;) {
		size_t chunk = (size_t)(sctp[at + 2] << 8 | sctp[at + 3]);

		if (sctp[at] == 0 || sctp[at] == 192)
			write32(sctp + at + 4, read32(sctp + at + 4) + end->tsn);
		else if (sctp[at] == 3)
			write32(sctp + at + 4, read32(sctp + at + 4) + ends[(flags & 3) ^ 1].tsn);
		if (as_given == OTHER_TSNS || chunk < 4)
			break;
		at += (chunk + 3) & ~(size_t)3;
	}
	if (as_given != CHECKSUM)
		checksum_set(sctp, (int)length + COMMON_HEADER);
	usrsctp_get_stat(&before);
	packets_input4((const char *)datagram, (int)length + IP_HEADER + COMMON_HEADER);
	usrsctp_get_stat(&after);
	crafted++;
	reached += before.sctps_badsum == after.sctps_badsum && before.sctps_badvtag == after.sctps_badvtag &&
		   before.sctps_outoftheblue == after.sctps_outoftheblue && before.sctps_hdrops == after.sctps_hdrops;
}

/* Change bytes of a packet on the wire, behind its common header, and mend its checksum. */
static void change(struct input *input)
{
	struct wire_packet *packet;
	uint8_t *sctp;
	int length, changes = input_byte(input) % 8, offset;

	if (wire_count == 0)
		return;
	packet = &wire[input_byte(input) % wire_count];
	sctp = packet->bytes + (packet->v6 ? 0 : (packet->bytes[0] & 15) * 4);
	length = packet->length - (int)(sctp - packet->bytes);
	for (; changes >= 0 && length > COMMON_HEADER; changes--) {
		offset = COMMON_HEADER + input_byte(input) % (length - COMMON_HEADER);
		sctp[offset] = input_byte(input);
	}
	checksum_set(sctp, length);
}

/* Lose one, send one twice, cut one short, or let all arrive. */
static void on_wire(struct input *input)
{
	uint8_t what = input_byte(input), which = input_byte(input);

	if (wire_count == 0)
		return;
	which %= (uint8_t)wire_count;
	switch (what % 4) {
	case 0:
		wire_drop(which);
		break;
	case 1:
		if (wire_count < WIRE_MAX) {
			wire[wire_count] = wire[which];
			wire_count++;
		}
		break;
	case 2:
		if (wire[which].length > input_byte(input))
			wire[which].length -= 4;
		break;
	default:
		world_turn(1, 1);
	}
}

/* The actions of the programs meanwhile. */
static void program(struct input *input)
{
	static const uint8_t payload[8192];
	static char taken[MESSAGE_MAX + 1024];
	uint8_t what = input_byte(input), which = input_byte(input) % ATTACKED;
	struct sctp_socket *s = held[which] >= 0 ? socket_of(held[which]) : NULL;

	switch (what % 6) {
	case 0:
		if (s != NULL)
			make_call(OP_SEND, s, 0, 0, NULL, 0, payload, 1 + input_byte(input) * 32U);
		break;
	case 1:
		if (held[which] >= 0)
			recv(held[which], taken, sizeof(taken), MSG_DONTWAIT);
		break;
	case 2:
		if (held[which] >= 0)
			close(held[which]);
		held[which] = -1;
		break;
	case 3:
		if (s != NULL)
			make_call(OP_SHUTDOWN, s, SHUT_WR, 0, NULL, 0, NULL, 0);
		break;
	default:
		world_turn(1U << (input_byte(input) % 15), what % 6 == 4);
	}
}

static void tell(void)
{
	fprintf(stderr, "crafted packets: %lu, taken as an association's own: %lu\n", crafted, reached);
}

int LLVMFuzzerInitialize(int *argument_count, char ***arguments)
{
	(void)argument_count;
	(void)arguments;
	atexit(tell);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t bytes[2048];
	struct input input = { data, size };
	struct sockaddr_in6 here = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	int i, records;
	size_t length;

	world_begin();
	memset(held, 0xff, sizeof(held));
	memset(ends, 0, sizeof(ends));
	set_up();
	for (records = 0; input.left > 0 && records < RECORDS_MAX; records++) {
		uint8_t kind = input_byte(&input);

		switch (kind % KINDS) {
		case CRAFT:
			craft(&input);
			break;
		case CHANGE:
			change(&input);
			break;
		case WIRE:
			on_wire(&input);
			break;
		case PROGRAM:
			program(&input);
			break;
		case DATAGRAM:
			length = input_bytes(&input, bytes, input_byte(&input));
			packets_input4((char *)bytes, (int)length);
			break;
		default:
			length = input_bytes(&input, bytes, input_byte(&input));
			checksum_set(bytes, (int)length);
			memcpy(&here.sin6_port, bytes, 2);
			packets_input((char *)bytes, (int)length, (struct sockaddr *)&here, (struct sockaddr *)&here, 0);
		}
		world_turn(1, kind & 0x80);
	}
	talk(BYSTANDER, BYSTANDER_ACCEPTED);
	talk(BYSTANDER_ACCEPTED, BYSTANDER);
	for (i = 0; i < SOCKETS; i++)
		if (held[i] >= 0)
			close(held[i]);
	world_end();
	return 0;
}
