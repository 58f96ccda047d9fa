#include "world.h"

#include <netinet/in.h>
#include <netinet/ip.h>
#include <sanitizer/allocator_interface.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../sctpd/control.h"
#include "../sctpd/lifecycle.h"
#include "../sctpd/loop.h"
#include "../sctpd/packets.h"
#include "../sctpd/sockets.h"
#include "../sctpd/stack.h"
#include "../sctpd/usrsctp_internal.h"

#define NOWHERE (-1) /* the raw sockets' descriptor while they aren't open */
#define TURNS_MAX 16
#define LONGEST_TIMER_MS 400000
#define LONGEST_END 40 /* turns: each timer goes off once in one, and an association is given up after some ten */
#define LEFT_BEHIND_MAX (16 << 20) /* bytes: of all inputs together */
#define COUNTERS (sizeof(struct sctpstat) / sizeof(uint32_t))

struct wire_packet wire[WIRE_MAX];
int wire_count;
void (*wire_watcher)(const uint8_t *sctp, int length);

static uint64_t now_ms = 1000000, random_state;
static uint32_t before[COUNTERS];
static size_t allocated_before;
static long left_behind;

/* usrsctp isn't instrumented; what it counts tells the fuzzer of new behaviour instead. */
__attribute__((used, section("__libfuzzer_extra_counters"))) static uint8_t counters[COUNTERS];

int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_packets_open(void);
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t length);
int __wrap_getsockname(int fd, struct sockaddr *name, socklen_t *length);
int __wrap_interfaces_watch(void);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
void read_random(void *to, size_t length); /* the library's own gets replaced */

uint8_t input_byte(struct input *input)
{
	if (input->left == 0)
		return 0;
	input->left--;
	return *input->at++;
}

uint16_t input_short(struct input *input)
{
	uint16_t high = input_byte(input);

	return (uint16_t)(high << 8 | input_byte(input));
}

size_t input_bytes(struct input *input, void *to, size_t length)
{
	size_t there = length < input->left ? length : input->left;

	memset(to, 0, length);
	memcpy(to, input->at, there);
	input->at += there;
	input->left -= there;
	return there;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
	(void)clock;
	now->tv_sec = (time_t)(now_ms / 1000);
	now->tv_nsec = (long)(now_ms % 1000) * 1000000;
	return 0;
}

void read_random(void *to, size_t length)
{
	uint8_t *byte = to;

	while (length-- > 0) {
		random_state = random_state * 6364136223846793005U + 1442695040888963407U;
		*byte++ = (uint8_t)(random_state >> 56);
	}
}

int __wrap_packets_open(void)
{
	return 0;
}

int __wrap_interfaces_watch(void)
{
	static const char *const names[] = { "lo1", "interface2", "interface3" };
	static const uint32_t hosts[] = { 0x7f000001, 0x0a000001, 0x0a000002 };
	unsigned int i;

	for (i = 0; i < 3; i++) {
		struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(hosts[i]) };
		struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };

		sctp_add_addr_to_vrf(0, NULL, i + 1, 0, names[i], NULL, (struct sockaddr *)&v4, 0, 0);
		if (i > 0) { /* fd00::1, fd00::2 */
			v6.sin6_addr.s6_addr[0] = 0xfd;
			v6.sin6_addr.s6_addr[15] = (uint8_t)i;
		}
		sctp_add_addr_to_vrf(0, NULL, i + 1, 0, names[i], NULL, (struct sockaddr *)&v6, 0, 0);
	}
	return 0;
}

/* sctpd asks the kernel for its route this way, and this machine's routes are nothing to the fuzzer: each address of the world
 * is reached from itself, everything else from the first one. */
static struct sockaddr_in6 asked;

int __wrap_connect(int fd, const struct sockaddr *to, socklen_t length)
{
	(void)fd;
	memset(&asked, 0, sizeof(asked));
	memcpy(&asked, to, length < sizeof(asked) ? length : sizeof(asked));
	return 0;
}

int __wrap_getsockname(int fd, struct sockaddr *name, socklen_t *length)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)&asked;
	uint32_t host = ntohl(v4->sin_addr.s_addr);

	(void)fd;
	if (asked.sin6_family == AF_INET && host >> 24 == 127)
		v4->sin_addr.s_addr = htonl(0x7f000001);
	else if (asked.sin6_family == AF_INET && host != 0x0a000002)
		v4->sin_addr.s_addr = htonl(0x0a000001);
	else if (asked.sin6_family == AF_INET6 && !IN6_IS_ADDR_LOOPBACK(&asked.sin6_addr) && asked.sin6_addr.s6_addr[15] != 2)
		asked.sin6_addr = (struct in6_addr){ .s6_addr = { 0xfd, [15] = 1 } };
	memcpy(name, &asked, *length < sizeof(asked) ? *length : sizeof(asked));
	return 0;
}

static struct wire_packet *put_on_wire(void)
{
	return wire_count < WIRE_MAX ? &wire[wire_count++] : NULL;
}

/* IPv4 gets the header that the kernel would put before it. */
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
	const struct sockaddr_in *to = message->msg_name;
	struct ip header = { .ip_hl = 5, .ip_v = 4, .ip_p = IPPROTO_SCTP };
	struct sockaddr_in6 source = { .sin6_family = AF_INET6 };
	struct wire_packet *packet;
	size_t length, skip;

	if (fd != NOWHERE)
		return __real_sendmsg(fd, message, flags);
	length = message->msg_iov[0].iov_len;
	skip = to->sin_family == AF_INET ? sizeof(header) : 0;
	if (skip + length > FUZZ_PACKET_MAX || (packet = put_on_wire()) == NULL)
		return (ssize_t)length;
	*packet = (struct wire_packet){ .length = (int)(skip + length), .v6 = skip == 0 };
	memcpy(packet->bytes + skip, message->msg_iov[0].iov_base, length);
	if (skip > 0) {
		header.ip_dst = to->sin_addr;
		memcpy(&header.ip_src, CMSG_DATA(CMSG_FIRSTHDR(message)) + offsetof(struct in_pktinfo, ipi_spec_dst), sizeof(header.ip_src));
		memcpy(packet->bytes, &header, sizeof(header));
	} else {
		memcpy(&source.sin6_addr, CMSG_DATA(CMSG_FIRSTHDR(message)), sizeof(source.sin6_addr));
		memcpy(&source.sin6_port, packet->bytes, 2);
		memcpy(&packet->source, &source, sizeof(source));
		memcpy(&packet->destination, message->msg_name, sizeof(struct sockaddr_in6));
		memcpy(&((struct sockaddr_in6 *)&packet->destination)->sin6_port, packet->bytes + 2, 2);
	}
	if (wire_watcher != NULL)
		wire_watcher(packet->bytes + skip, (int)length);
	return (ssize_t)length;
}

void wire_drop(int which)
{
	wire_count--;
	memmove(&wire[which], &wire[which + 1], (size_t)(wire_count - which) * sizeof(wire[0]));
}

void checksum_set(uint8_t *sctp, int length)
{
	uint32_t sum;

	if (length < 12)
		return;
	memset(sctp + 8, 0, 4);
	sum = usrsctp_crc32c(sctp, (size_t)length);
	memcpy(sctp + 8, &sum, sizeof(sum));
}

static void deliver_first(void)
{
	static struct wire_packet packet;

	packet = wire[0];
	wire_drop(0);
	if (packet.v6)
		packets_input((const char *)packet.bytes, packet.length, (struct sockaddr *)&packet.source,
			      (struct sockaddr *)&packet.destination, 0);
	else
		packets_input4((const char *)packet.bytes, packet.length);
}

void world_turn(uint32_t ms, int deliver)
{
	int turn, number;

	now_ms += ms;
	for (turn = 0; turn < TURNS_MAX; turn++) {
		timers_run();
		stack_run_deferred_work();
		sockets_run();
		control_had_turn();
		loop_wait(0);
		for (number = deliver ? wire_count : 0; number > 0; number--)
			deliver_first();
		if (!sockets_pending() && !control_wants_turn() && (!deliver || wire_count == 0))
			break;
	}
}

static void note_counters(void)
{
	union {
		struct sctpstat statistics;
		uint32_t numbers[COUNTERS];
	} now;
	unsigned int i, bits;

	usrsctp_get_stat(&now.statistics);
	for (i = 0; i < COUNTERS; i++) {
		uint32_t difference = now.numbers[i] - before[i];

		for (bits = 0; difference != 0; difference >>= 1)
			bits++;
		counters[i] = (uint8_t)bits;
		before[i] = now.numbers[i];
	}
}

static void start(void)
{
	if (loop_start() != 0 || stack_start(&stack_defaults) != 0) {
		fprintf(stderr, "cannot start sctpd's parts\n");
		exit(1);
	}
}

void world_begin(void)
{
	static int started;

	random_state = 1;
	if (!started)
		start();
	started = 1;
	wire_watcher = NULL;
	allocated_before = __sanitizer_get_current_allocated_bytes();
}

void world_end(void)
{
	int i;

	note_counters();
	wire_watcher = NULL;
	sockets_end_all();
	for (i = 0; i < 4 || (i < LONGEST_END && __sanitizer_get_current_allocated_bytes() > allocated_before); i++) {
		wire_count = 0;
		world_turn(LONGEST_TIMER_MS, 1);
	}
	if (sockets_count() != 0 || control_count() != 0)
		abort();
	left_behind += (long)__sanitizer_get_current_allocated_bytes() - (long)allocated_before;
	if (left_behind > LEFT_BEHIND_MAX) {
		fprintf(stderr, "%ld bytes are left behind by all inputs\n", left_behind);
		abort();
	}
}
