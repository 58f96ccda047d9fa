/*
 * A fuzzer (libFuzzer) of all that a gateway's guard does with packets: the BPF program, compiled for this machine, its
 * maps, the ring, and ppu-guard's core. Time and packets are the fuzzer's; what the guard sends comes back in as it does
 * on a gateway.
 *
 * It looks for more than steps out of bounds: each set-up ends, and once; a repetition has every byte of what the client
 * sent; nothing that was taken is kept.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wmissing-prototypes" /* its functions are the kernel's to call */
#include "../bpf/guard.bpf.c"
#pragma clang diagnostic pop

#include "../core.h"

#define PENDING 24
#define MEMBERS 4
#define MOST_BUCKETS 16
#define RING_BYTES 8192
#define RECORD_BYTES 8 /* the kernel's own, before each record */
#define LINK 7
#define FRAME_BYTES 700
#define BEGAN_MS 5000000
#define KNOWN_FRAMES 64
#define MOST_AT_ONCE 600 /* of one input; more of the same finds nothing */
#define PORT_BYTES "\x13\xc4"

#define MUST(what)                                                                                                     \
	do {                                                                                                           \
		if (!(what)) {                                                                                         \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);                             \
			abort();                                                                                       \
		}                                                                                                      \
	} while (0)

static struct {
	uint64_t now_ms;
	struct settings settings;
	struct destination destinations[MEMBERS];
	uint32_t places[MEMBERS];
	struct member members[MEMBERS];
	struct bucket buckets[MOST_BUCKETS];
	uint64_t counters[COUNTER_COUNT];
	uint8_t ring[RING_BYTES] __attribute__((aligned(8)));
	uint32_t ring_used, record_size;
	void *reserved;
	struct core core;
	/* The packet under way. */
	uint8_t frame[FRAME_BYTES];
	uint32_t size;
	struct __sk_buff skb;
	/* The frames that clients sent last, without VLAN tag. */
	struct {
		uint8_t frame[FRAME_BYTES];
		uint32_t size, vlan;
	} sent[KNOWN_FRAMES];
	uint32_t sent_count;
} world;

/* The kernel's part */

static void *bpf_map_lookup_elem(void *map, const void *key)
{
	uint32_t index;
	if (map == (void *)&destinations) {
		for (uint32_t i = 0; i < MEMBERS; i++)
			if (memcmp(key, &world.destinations[i], sizeof(struct destination)) == 0)
				return &world.places[i];
		return NULL;
	}
	memcpy(&index, key, sizeof(index));
	if (map == (void *)&settings)
		return index == 0 ? &world.settings : NULL;
	if (map == (void *)&members)
		return index < MEMBERS ? &world.members[index] : NULL;
	if (map == (void *)&buckets)
		return index < world.settings.buckets ? &world.buckets[index] : NULL;
	MUST(map == (void *)&counters);
	return index < COUNTER_COUNT ? &world.counters[index] : NULL;
}

static void *bpf_ringbuf_reserve(void *ring, __u64 size, __u64 flags)
{
	MUST(ring == (void *)&notices && flags == 0 && !world.reserved);
	if (world.ring_used + RECORD_BYTES + size > RING_BYTES)
		return NULL;
	world.record_size = (uint32_t)size;
	world.reserved = malloc(size); /* a step beyond it is seen */
	memset(world.reserved, 0xa5, size); /* whatever was there before */
	return world.reserved;
}

static void bpf_ringbuf_discard(void *record, __u64 flags)
{
	(void)flags;
	MUST(record == world.reserved);
	free(world.reserved);
	world.reserved = NULL;
}

static void bpf_ringbuf_submit(void *record, __u64 flags)
{
	memcpy(world.ring + world.ring_used, &world.record_size, sizeof(world.record_size));
	memcpy(world.ring + world.ring_used + RECORD_BYTES, record, world.record_size);
	world.ring_used += RECORD_BYTES + ((world.record_size + 7) & ~7u);
	bpf_ringbuf_discard(record, flags);
}

static __u64 bpf_ringbuf_query(void *ring, __u64 what)
{
	(void)ring;
	(void)what;
	return world.ring_used;
}

static __u64 bpf_ktime_get_ns(void)
{
	return world.now_ms * 1000000;
}

static long bpf_skb_load_bytes(const struct __sk_buff *skb, __u32 offset, void *to, __u32 size)
{
	MUST(skb == &world.skb);
	if (offset > world.size || size > world.size - offset)
		return -1;
	memcpy(to, world.frame + offset, size);
	return 0;
}

static long bpf_redirect(__u32 interface, __u64 flags)
{
	MUST(interface == LINK && flags == BPF_F_INGRESS);
	return TC_ACT_REDIRECT;
}

/* Have the frame pass one of the programs: the kernel has taken the outermost VLAN tag out of it. */
static int pass(int (*program)(struct __sk_buff *), const uint8_t *frame, uint32_t size, uint32_t mark)
{
	MUST(size <= FRAME_BYTES);
	memset(&world.skb, 0, sizeof(world.skb));
	memcpy(world.frame, frame, size);
	world.size = size;
	if (size >= 18 && frame[12] == 0x81 && frame[13] == 0) {
		world.skb.vlan_present = 1;
		world.skb.vlan_tci = (uint32_t)(frame[14] << 8 | frame[15]);
		memmove(world.frame + 12, world.frame + 16, size - 16);
		world.size -= 4;
	}
	world.skb.len = world.size;
	world.skb.ifindex = LINK;
	world.skb.mark = mark;
	int verdict = program(&world.skb);
	MUST(!world.reserved);
	MUST(mark != REPEAT_MARK || verdict == TC_ACT_REDIRECT || world.skb.mark == 0);
	return verdict;
}

/* ppu-guard's part */

static bool is_known(const uint8_t *frame, uint32_t size, uint32_t vlan)
{
	struct shape shape;
	uint8_t with_sums[FRAME_BYTES];
	for (uint32_t i = 0; i < world.sent_count && i < KNOWN_FRAMES; i++) {
		if (world.sent[i].size < size || world.sent[i].vlan != vlan)
			continue; /* behind the IP packet there may be padding */
		memcpy(with_sums, world.sent[i].frame, size);
		if (!frame_shape(with_sums, (uint16_t)size, &shape))
			continue;
		memcpy(with_sums + shape.transport + (shape.is_sctp ? 8 : 16),
		       frame + shape.transport + (shape.is_sctp ? 8 : 16), shape.is_sctp ? 4 : 2);
		if (!shape.is_ipv6)
			memcpy(with_sums + 24, frame + 24, 2);
		if (memcmp(with_sums, frame, size) == 0)
			return true;
	}
	return world.sent_count > KNOWN_FRAMES;
}

static void sent(void *to, enum act act, uint32_t interface, const uint8_t *frame, uint16_t size)
{
	(void)to;
	MUST(interface == LINK && size <= MOST_FRAME + 4);
	if (act == REFUSE) {
		MUST(size <= MOST_RESET);
		MUST(pass(guard_out, frame, size, 0) == PASS);
		return;
	}
	MUST(pass(guard_out, frame, size, REPEAT_MARK) == TC_ACT_REDIRECT);
	MUST(is_known(world.frame, world.size, world.skb.vlan_present ? world.skb.vlan_tci : 0xffffffff));
	uint64_t before = world.counters[COUNT_GUARDED] + world.counters[COUNT_SWALLOWED];
	MUST(pass(guard_in, frame, size, REPEAT_MARK) == PASS);
	MUST(before == world.counters[COUNT_GUARDED] + world.counters[COUNT_SWALLOWED]);
}

static void consume(void)
{
	for (uint32_t at = 0; at < world.ring_used;) {
		uint32_t size;
		struct notice notice;
		const uint8_t *frame;
		memcpy(&size, world.ring + at, sizeof(size));
		uint8_t *record = malloc(size); /* a step beyond it is seen */
		memcpy(record, world.ring + at + RECORD_BYTES, size);
		MUST(notice_read(record, size, &notice, &frame));
		MUST(notice.member < MEMBERS);
		core_take(&world.core, &notice, frame, core_spacing_ms(world.members[notice.member].round_trip_us),
			  world.now_ms);
		free(record);
		at += RECORD_BYTES + ((size + 7) & ~7u);
	}
	world.ring_used = 0;
}

static uint64_t pending(void)
{
	uint64_t found = 0;
	for (uint32_t i = 0; i < world.settings.buckets; i++)
		for (uint32_t way = 0; way < WAYS; way++) {
			MUST(world.buckets[i].entries[way].tag != BUSY);
			found += world.buckets[i].entries[way].tag != FREE;
		}
	return found;
}

static void look(void)
{
	consume();
	core_advance(&world.core, world.now_ms);
	uint64_t ended = world.counters[COUNT_ANSWERED] + world.counters[COUNT_REFUSED] +
			 world.counters[COUNT_REPLACED] + world.core.refused + world.core.unlike;
	MUST(world.counters[COUNT_GUARDED] == ended + pending());
}

/* The fuzzer's part */

struct input {
	const uint8_t *data;
	size_t size;
};

static uint32_t take(struct input *input, unsigned int bytes)
{
	uint32_t value = 0;
	for (; bytes && input->size; bytes--, input->size--)
		value = value << 8 | *input->data++;
	return value;
}

static void begin_world(void)
{
	static const char *const ADDRESSES[MEMBERS] = {
		"\x0a\2\0\x09\0\0\0\0\0\0\0\0\0\0\0\0", "\x0a\2\0\x09\0\0\0\0\0\0\0\0\0\0\0\0",
		"\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x09", "\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x09"};
	memset(&world, 0, sizeof(world));
	world.now_ms = BEGAN_MS;
	world.settings.secret[0] = 1;
	world.settings.secret[1] = 2;
	world.settings.buckets = core_buckets(PENDING);
	world.settings.wake_bytes = RING_BYTES / 4;
	MUST(world.settings.buckets <= MOST_BUCKETS);
	for (uint32_t i = 0; i < MEMBERS; i++) {
		memcpy(world.destinations[i].address, ADDRESSES[i], 16);
		memcpy(&world.destinations[i].port, PORT_BYTES, 2);
		world.destinations[i].version = i < 2 ? 4 : 6;
		world.destinations[i].protocol = i % 2 ? PROTOCOL_SCTP : PROTOCOL_TCP;
		world.places[i] = i;
		world.members[i].is_guarded = 1;
	}
	MUST(core_open(&world.core, world.buckets, world.settings.buckets, world.now_ms, sent, NULL) == 0);
}

static void let_live(void)
{
	world.settings.alive_until_ns = (world.now_ms + 500) * 1000000;
}

/* A whole SYN or INIT of the client with this number; its size. */
static uint32_t make_setup(uint8_t *frame, uint32_t kind, uint32_t client, uint32_t token, uint32_t vlan)
{
	static const uint8_t SYN_OPTIONS[] = {2, 4, 5, 180, 4, 2, 8, 10, 0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0, 1, 3, 3, 7};
	static const uint8_t INIT_OPTIONS[] = {0, 1, 0, 0, 0, 10, 0, 10, 0x12, 0x34, 0x56, 0x78, 0xc0, 0, 0, 4, 0x80, 0, 0, 4};
	bool is_ipv6 = kind & 1, is_sctp = kind & 2, has_options = !(kind & 4);
	uint32_t more = has_options ? 0 : 120; /* a parameter for padding (RFC 4820) */
	uint32_t rest = is_sctp ? 12 + 28 + more : has_options ? 40 : 20, at = 14 + (vlan ? 4 : 0);
	memset(frame, 0, FRAME_BYTES);
	memcpy(frame, "\2\0\0\0\0\1\2\0\0\0\0\2", 12);
	if (vlan)
		memcpy(frame + 12, (uint8_t[]){0x81, 0, (uint8_t)(vlan >> 8), (uint8_t)vlan}, 4);
	memcpy(frame + at - 2, is_ipv6 ? "\x86\xdd" : "\x08\x00", 2);
	uint8_t *ip = frame + at;
	if (is_ipv6) {
		memcpy(ip, (uint8_t[]){0x60, 1, 2, (uint8_t)client, 0, (uint8_t)rest, is_sctp ? 132 : 6, 64}, 8);
		ip[8] = ip[24] = 0xfd;
		ip[23] = (uint8_t)client;
		ip[39] = 9;
	} else {
		memcpy(ip, (uint8_t[]){0x45, 0, 0, (uint8_t)(rest + 20), 7, (uint8_t)client, 0x40, 0, 64, is_sctp ? 132 : 6}, 10);
		memcpy(ip + 12, (uint8_t[]){10, 1, 0, (uint8_t)client, 10, 2, 0, 9}, 8);
	}
	uint8_t *head = ip + (is_ipv6 ? 40 : 20);
	memcpy(head, (uint8_t[]){0x90, (uint8_t)(client >> 8), 0x13, 0xc4}, 4);
	uint8_t number[4] = {(uint8_t)(token >> 24), (uint8_t)(token >> 16), (uint8_t)(token >> 8), (uint8_t)token};
	if (is_sctp) {
		memcpy(head + 12, (uint8_t[]){1, 0, 0, (uint8_t)(28 + more)}, 4);
		memcpy(head + 16, number, 4);
		if (more)
			memcpy(head + 40, (uint8_t[]){0x80, 5, 0, (uint8_t)more}, 4);
		memcpy(head + 20, INIT_OPTIONS, sizeof(INIT_OPTIONS));
	} else {
		memcpy(head + 4, number, 4);
		head[12] = (uint8_t)(rest / 4 << 4);
		head[13] = 2;
		if (has_options)
			memcpy(head + 20, SYN_OPTIONS, sizeof(SYN_OPTIONS));
	}
	return (uint32_t)(head - frame) + rest;
}

/* The answer of its server to such a set-up; not all are right. */
static uint32_t make_answer(uint8_t *frame, uint32_t kind, uint32_t client, uint32_t token, uint32_t vlan, uint32_t how)
{
	uint8_t setup[FRAME_BYTES];
	uint32_t size = make_setup(setup, kind, client, token, vlan), at = 14 + (vlan ? 4 : 0);
	memcpy(frame, setup, FRAME_BYTES);
	uint32_t length = kind & 1 ? 16 : 4, source = at + (kind & 1 ? 8 : 12);
	memcpy(frame + source, setup + source + length, length);
	memcpy(frame + source + length, setup + source, length);
	uint32_t head = at + (kind & 1 ? 40 : 20);
	memcpy(frame + head, setup + head + 2, 2);
	memcpy(frame + head + 2, setup + head, 2);
	token += how & 4 ? 1 : 0;
	if (kind & 2) {
		memcpy(frame + head + 4, (uint8_t[]){(uint8_t)(token >> 24), (uint8_t)(token >> 16), (uint8_t)(token >> 8), (uint8_t)token}, 4);
		frame[head + 12] = how & 1 ? 6 : 2;
		return size;
	}
	token++;
	memcpy(frame + head + 8, (uint8_t[]){(uint8_t)(token >> 24), (uint8_t)(token >> 16), (uint8_t)(token >> 8), (uint8_t)token}, 4);
	frame[head + 13] = how & 1 ? 0x14 : how & 2 ? 0x10 : 0x12;
	return size;
}

static uint32_t mutate(struct input *input, uint8_t *frame, uint32_t size)
{
	for (uint32_t times = take(input, 1) & 3; times; times--) {
		uint32_t what = take(input, 1), value = take(input, 1);
		if (what >= 0xf0)
			size = value < FRAME_BYTES ? value : FRAME_BYTES;
		else if (what < size)
			frame[what] = (uint8_t)value;
	}
	return size;
}

static void from_client(const uint8_t *frame, uint32_t size)
{
	uint64_t guarded = world.counters[COUNT_GUARDED], swallowed = world.counters[COUNT_SWALLOWED];
	int verdict = pass(guard_in, frame, size, 0);
	MUST(verdict == (world.counters[COUNT_SWALLOWED] == swallowed ? PASS : TC_ACT_SHOT));
	if (world.counters[COUNT_GUARDED] == guarded)
		return;
	uint32_t index = world.sent_count++ % KNOWN_FRAMES;
	memcpy(world.sent[index].frame, world.frame, sizeof(world.frame));
	world.sent[index].size = world.size;
	world.sent[index].vlan = world.skb.vlan_present ? world.skb.vlan_tci : 0xffffffff;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = {data, size};
	uint8_t frame[FRAME_BYTES] = {0};
	begin_world();
	let_live();
	for (uint32_t client = 0, token = 0, kind = 0, vlan = 0, many = 0; input.size;) {
		uint32_t what = take(&input, 1);
		switch (what & 7) {
		case 0: /* any bytes, from the client or to it */
			size = take(&input, 2) % FRAME_BYTES;
			for (uint32_t i = 0; i < size; i++)
				frame[i] = (uint8_t)take(&input, 1);
			if (what & 8)
				MUST(pass(guard_out, frame, (uint32_t)size, 0) == PASS);
			else
				from_client(frame, (uint32_t)size);
			break;
		case 1:
		case 2: /* a set-up, as it is or changed here and there */
			kind = what >> 3 & 7;
			client = take(&input, 1);
			vlan = what & 0x40 ? 0x2064 + client % 4 : 0;
			token = take(&input, 1) | 1;
			size = make_setup(frame, kind, client, token, vlan);
			if (what & 0x80)
				size = mutate(&input, frame, (uint32_t)size);
			from_client(frame, (uint32_t)size);
			break;
		case 3: /* an answer to the last */
			size = make_answer(frame, kind, client, token, vlan, what >> 3);
			if (what & 0x80)
				size = mutate(&input, frame, (uint32_t)size);
			MUST(pass(guard_out, frame, (uint32_t)size, 0) == PASS);
			break;
		case 4: /* the last once more, by the client's own timer */
			from_client(frame, make_setup(frame, kind, client, token, vlan));
			break;
		case 5: /* time goes by; a stopped guard renews nothing */
			world.now_ms += take(&input, 1) * (what & 0x80 ? 32u : 4u);
			if (!(what & 8)) {
				look();
				let_live();
			}
			break;
		case 6: /* members leave and come back */
			world.members[what >> 3 & 3].is_guarded = what >> 5 & 1;
			break;
		default: /* ppu-guard looks; or many begin at once: table and ring may have no room */
			if (!(what & 8)) {
				look();
				break;
			}
			for (uint32_t left = take(&input, 1); left && many++ < MOST_AT_ONCE; left--)
				from_client(frame, make_setup(frame, what >> 4 & 7, client++, token, 0));
		}
	}
	for (uint32_t i = 0; i < 200 && (world.core.waiting || world.ring_used || pending()); i++) {
		look();
		world.now_ms += 20;
	}
	look();
	MUST(world.core.waiting == 0 && world.core.template_count == 0 && pending() == 0);
	core_close(&world.core);
	return 0;
}
