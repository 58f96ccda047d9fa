/* Tests of what ppu-guard does without a kernel: the table, the wheel, and packets. Run under ASan and UBSan. */
#include "../core.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                                                    \
	do {                                                                                                           \
		if (!(what)) {                                                                                         \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);                             \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

#define BEGAN_MS 1000000
#define TOKEN htonl(0xfffffffe) /* the next but one is 0 */

/* The options that Linux sends: maximum segment size, SACK, timestamps, window scale. */
static const uint8_t LINUX_OPTIONS[] = {2, 4, 5, 180, 4, 2, 8, 10, 0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0, 1, 3, 3, 7};

static uint16_t put_ip(uint8_t *frame, bool is_ipv6, uint8_t protocol, uint16_t rest, uint8_t client)
{
	memset(frame, 0, MOST_FRAME);
	memcpy(frame, "\2\0\0\0\0\1\2\0\0\0\0\2", 12);
	uint8_t *ip = frame + 14;
	if (is_ipv6) {
		memcpy(frame + 12, "\x86\xdd", 2);
		memcpy(ip, "\x60\x0a\xbc\xde", 4);
		ip[4] = (uint8_t)(rest >> 8);
		ip[5] = (uint8_t)rest;
		ip[6] = protocol;
		ip[7] = 61;
		ip[8] = ip[24] = 0xfd;
		ip[23] = client;
		ip[39] = 9;
		return 54;
	}
	memcpy(frame + 12, "\x08\x00\x45\x10", 4);
	ip[2] = (uint8_t)((rest + 20) >> 8);
	ip[3] = (uint8_t)(rest + 20);
	memcpy(ip + 4, "\xab\xcd\x40\0", 4);
	ip[8] = 61;
	ip[9] = protocol;
	memcpy(ip + 12, "\x0a\1\0", 3);
	ip[15] = client;
	memcpy(ip + 16, "\x0a\2\0\x09", 4);
	return 34;
}

static uint16_t make_syn(uint8_t *frame, bool is_ipv6, uint16_t port, uint32_t token, uint8_t client)
{
	uint16_t rest = 20 + sizeof(LINUX_OPTIONS), at = put_ip(frame, is_ipv6, PROTOCOL_TCP, rest, client);
	uint8_t *head = frame + at;
	port = htons(port);
	memcpy(head, &port, 2);
	memcpy(head + 2, "\x13\xc4", 2);
	memcpy(head + 4, &token, 4);
	head[12] = (uint8_t)(rest / 4 << 4);
	head[13] = 0xc2; /* SYN, asking for ECN */
	head[14] = 0xfa;
	memcpy(head + 20, LINUX_OPTIONS, sizeof(LINUX_OPTIONS));
	return (uint16_t)(at + rest);
}

static uint16_t make_init(uint8_t *frame, bool is_ipv6, uint16_t port, uint32_t token, uint8_t client)
{
	uint16_t rest = 12 + 20 + 8, at = put_ip(frame, is_ipv6, PROTOCOL_SCTP, rest, client);
	uint8_t *head = frame + at;
	port = htons(port);
	memcpy(head, &port, 2);
	memcpy(head + 2, "\x0b\x59", 2);
	memcpy(head + 12, "\1\0\0\x1c", 4);
	memcpy(head + 16, &token, 4);
	memcpy(head + 20, "\0\1\0\0\0\x0a\0\x0a\x12\x34\x56\x78\xc0\0\0\4\x80\0\0\4", 20);
	return (uint16_t)(at + rest);
}

/* A table, entered into as the BPF program does. */
struct world {
	struct core core;
	struct bucket *buckets;
	uint32_t count;
	unsigned int sent[2];
	uint64_t at_ms, times_ms[64];
	uint8_t last[2][MOST_FRAME + 4];
	uint16_t sizes[2];
};

static const __u64 SECRET[2] = {1, 2};

static void sent(void *to, enum act act, uint32_t interface, const uint8_t *frame, uint16_t size)
{
	struct world *world = to;
	CHECK(interface == 7);
	if (world->sent[REPEAT] + world->sent[REFUSE] < 64)
		world->times_ms[world->sent[REPEAT] + world->sent[REFUSE]] = world->at_ms - BEGAN_MS;
	world->sent[act]++;
	memcpy(world->last[act], frame, size);
	world->sizes[act] = size;
}

static struct world *new_world(uint32_t pending)
{
	struct world *world = calloc(1, sizeof(*world));
	world->count = core_buckets(pending);
	world->buckets = calloc(world->count, sizeof(struct bucket));
	CHECK(core_open(&world->core, world->buckets, world->count, BEGAN_MS, sent, world) == 0);
	return world;
}

static void end_world(struct world *world)
{
	core_close(&world->core);
	free(world->buckets);
	free(world);
}

static struct entry *enter(struct world *world, const struct key *key, uint32_t token, uint32_t *slot)
{
	__u64 hash = key_hash(key, SECRET);
	uint32_t one = first_bucket(hash, world->count), other = second_bucket(hash, world->count);
	CHECK(one < world->count && other < world->count);
	uint32_t number = bucket_room(&world->buckets[one]) >= bucket_room(&world->buckets[other]) ? one : other;
	int way = bucket_take(&world->buckets[number]);
	if (way == WAYS)
		return NULL;
	struct entry *entry = &world->buckets[number].entries[way];
	CHECK(entry->tag == BUSY);
	entry_fill(entry, tag_of(hash), key, token, (uint32_t)world->at_ms);
	CHECK(bucket_find(&world->buckets[number], tag_of(hash), key) == way);
	*slot = number * WAYS + (uint32_t)way;
	return entry;
}

static struct entry *begin(struct world *world, const uint8_t *frame, uint16_t size, uint32_t spacing_ms, uint32_t vlan)
{
	struct shape shape = {.transport = 34};
	struct key key = {.member = 3};
	struct notice notice = {.interface = 7, .member = 3, .size = size, .vlan = (uint16_t)vlan, .is_tagged = vlan != 0};
	frame_shape(frame, size, &shape);
	memcpy(key.client, frame + 14 + (shape.is_ipv6 ? 8 : 12), shape.is_ipv6 ? 16 : 4);
	memcpy(&key.port, frame + shape.transport, 2);
	memcpy(&notice.token, frame + shape.transport + (shape.is_sctp ? 16 : 4), 4);
	struct entry *entry = enter(world, &key, notice.token, &notice.slot);
	if (entry) {
		notice.began_ms = entry->began_ms;
		core_take(&world->core, &notice, frame, spacing_ms, world->at_ms);
	}
	return entry;
}

static void run_until(struct world *world, uint64_t until_ms, unsigned int step_ms)
{
	while (world->at_ms < until_ms) {
		world->at_ms += step_ms;
		core_advance(&world->core, world->at_ms);
	}
}

/* Both headers' checksums, over what was sent. */
static bool has_right_sums(const uint8_t *frame, uint16_t size, const struct shape *shape)
{
	uint32_t sum = 0;
	for (int i = 0; !shape->is_ipv6 && i < 20; i += 2)
		sum += (uint32_t)(frame[14 + i] << 8 | frame[15 + i]);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	if (!shape->is_ipv6 && sum != 0xffff)
		return false;
	if (!shape->is_sctp)
		return checksum(frame, size, shape) == 0;
	uint8_t copy[MOST_FRAME];
	memcpy(copy, frame, size);
	memset(copy + shape->transport + 8, 0, 4);
	uint32_t wanted = crc32c(copy + shape->transport, (uint16_t)(size - shape->transport));
	const uint8_t *told = frame + shape->transport + 8;
	return wanted == ((uint32_t)told[0] | (uint32_t)told[1] << 8 | (uint32_t)told[2] << 16 | (uint32_t)told[3] << 24);
}

static void test_silent_server(bool is_ipv6, bool is_sctp, unsigned int vlan)
{
	uint8_t frame[MOST_FRAME], repeated[MOST_FRAME + 4];
	struct shape shape;
	struct world *world = new_world(100);
	world->at_ms = BEGAN_MS;
	uint16_t size = (is_sctp ? make_init : make_syn)(frame, is_ipv6, 40000, TOKEN, 2);
	CHECK(begin(world, frame, size, SPACING_MS, vlan));
	run_until(world, BEGAN_MS + 5000, TICK_MS);
	CHECK(world->sent[REPEAT] == 3 && world->sent[REFUSE] == 1);
	for (unsigned int i = 0; i < 4; i++)
		CHECK(world->times_ms[i] >= (i + 1) * SPACING_MS && world->times_ms[i] <= (i + 1) * SPACING_MS + 2 * TICK_MS);
	CHECK(world->core.waiting == 0 && world->core.template_count == 0);
	/* Every byte as the client sent it, but for checksums, which network cards fill in later. */
	CHECK(frame_shape(frame, size, &shape));
	uint16_t offset = vlan ? 4 : 0;
	CHECK(world->sizes[REPEAT] == size + offset);
	memcpy(repeated, world->last[REPEAT], 12);
	if (vlan)
		CHECK(memcmp(world->last[REPEAT] + 12, (uint8_t[]){0x81, 0, (uint8_t)(vlan >> 8), (uint8_t)vlan}, 4) == 0);
	memcpy(repeated + 12, world->last[REPEAT] + 12 + offset, size - 12u);
	CHECK(has_right_sums(repeated, size, &shape));
	memset(repeated + shape.transport + (is_sctp ? 8 : 16), 0, is_sctp ? 4 : 2);
	if (!is_ipv6)
		memset(repeated + 24, 0, 2);
	CHECK(memcmp(repeated, frame, size) == 0);
	/* The refusal: from the server's addresses, to the client's. */
	const uint8_t *refusal = world->last[REFUSE] + offset;
	uint8_t plain[MOST_RESET];
	memcpy(plain, world->last[REFUSE], 12);
	memcpy(plain + 12, refusal + 12, world->sizes[REFUSE] - offset - 12u);
	CHECK(memcmp(plain, frame + 6, 6) == 0 && memcmp(plain + 6, frame, 6) == 0);
	CHECK(memcmp(plain + shape.transport, frame + shape.transport + 2, 2) == 0);
	CHECK(memcmp(plain + shape.transport + 2, frame + shape.transport, 2) == 0);
	CHECK(has_right_sums(plain, (uint16_t)(world->sizes[REFUSE] - offset), &shape));
	const uint8_t *head = plain + shape.transport;
	if (is_sctp)
		CHECK(memcmp(head + 4, frame + shape.transport + 16, 4) == 0 && head[12] == 6 && head[13] == 0);
	else
		CHECK(head[13] == 0x14 && memcmp(head + 8, "\xff\xff\xff\xff", 4) == 0);
	end_world(world);
}

static void test_answer_ends_it(void)
{
	uint8_t frame[MOST_FRAME];
	struct world *world = new_world(100);
	world->at_ms = BEGAN_MS;
	struct entry *entry = begin(world, frame, make_syn(frame, false, 40000, TOKEN, 2), SPACING_MS, 0);
	run_until(world, BEGAN_MS + 700, TICK_MS);
	CHECK(world->sent[REPEAT] == 1);
	CHECK(entry_end(entry, entry->tag) && !entry_end(entry, entry->tag | 2));
	/* Its slot may have another set-up at once, before anything of the first was due again. */
	begin(world, frame, make_syn(frame, false, 40001, TOKEN, 3), SPACING_MS, 0);
	run_until(world, BEGAN_MS + 700 + 1900, TICK_MS);
	CHECK(world->sent[REPEAT] == 4 && world->sent[REFUSE] == 0);
	run_until(world, BEGAN_MS + 5000, TICK_MS);
	CHECK(world->sent[REFUSE] == 1 && world->core.waiting == 0 && world->core.template_count == 0);
	end_world(world);
}

static void test_slot_taken_again(void)
{
	uint8_t frame[MOST_FRAME];
	struct world *world = new_world(1);
	world->at_ms = BEGAN_MS;
	for (unsigned int i = 0; i < 1000; i++) { /* 16 slots; each set-up is answered, most before anything is due */
		struct entry *entry = begin(world, frame, make_syn(frame, i % 2, (uint16_t)(i + 1), TOKEN, (uint8_t)i), SPACING_MS, 0);
		CHECK(entry);
		entry_end(entry, entry->tag);
		run_until(world, world->at_ms + 4 * (i % 3), TICK_MS);
	}
	CHECK(world->sent[REPEAT] == 0);
	run_until(world, world->at_ms + 1000, TICK_MS);
	CHECK(world->core.waiting == 0 && world->core.template_count == 0);
	end_world(world);
}

static void test_learned_spacing(void)
{
	uint8_t frame[MOST_FRAME];
	CHECK(core_spacing_ms(0) == 500 && core_spacing_ms(1000) == 50 && core_spacing_ms(100000) == 151);
	CHECK(core_spacing_ms(400000) == 500 && core_spacing_ms(0xffffffff) == 500);
	struct world *world = new_world(10);
	world->at_ms = BEGAN_MS;
	begin(world, frame, make_syn(frame, false, 40000, TOKEN, 2), 151, 0);
	run_until(world, BEGAN_MS + 1000, TICK_MS);
	CHECK(world->sent[REPEAT] == 3 && world->sent[REFUSE] == 1);
	CHECK(world->times_ms[0] >= 151 && world->times_ms[3] >= 604 && world->times_ms[3] <= 620);
	end_world(world);
}

/* A process that did not run for a while refuses what is late, once, and goes on with the rest in time. */
static void test_standstill(void)
{
	uint8_t frame[MOST_FRAME];
	for (unsigned int stood_ms = 1000; stood_ms < 20000; stood_ms += 1100) {
		struct world *world = new_world(10);
		world->at_ms = BEGAN_MS;
		begin(world, frame, make_syn(frame, false, 40000, TOKEN, 2), SPACING_MS, 0);
		run_until(world, BEGAN_MS + stood_ms, stood_ms);
		begin(world, frame, make_syn(frame, false, 40001, TOKEN, 2), SPACING_MS, 0);
		run_until(world, world->at_ms + 1100, TICK_MS);
		CHECK(world->sent[REPEAT] <= 5);
		run_until(world, world->at_ms + 1000, TICK_MS);
		CHECK(world->sent[REFUSE] == 2 && world->core.waiting == 0);
		end_world(world);
	}
}

/* The clock in the table has 32 bits. */
static void test_clock_that_wraps(void)
{
	uint8_t frame[MOST_FRAME];
	struct world *world = new_world(10);
	world->at_ms = (1ull << 32) - 700;
	world->core.tick = world->at_ms / TICK_MS;
	begin(world, frame, make_syn(frame, false, 40000, TOKEN, 2), SPACING_MS, 0);
	run_until(world, (1ull << 32) + 1200, TICK_MS);
	CHECK(world->sent[REPEAT] == 3 && world->sent[REFUSE] == 0);
	run_until(world, (1ull << 32) + 1400, TICK_MS);
	CHECK(world->sent[REFUSE] == 1);
	end_world(world);
}

static void test_hundred_thousand_have_room(void)
{
	uint8_t frame[MOST_FRAME];
	struct world *world = new_world(100000);
	unsigned int entered = 0;
	world->at_ms = BEGAN_MS;
	for (uint32_t i = 0; i < 100000; i++) {
		uint32_t address = htonl(0x0a010000 + i / 1000);
		uint16_t size = make_syn(frame, false, (uint16_t)(1024 + i % 1000), htonl(i * 2654435761u), 2);
		memcpy(frame + 26, &address, 4);
		entered += begin(world, frame, size, SPACING_MS, 0) != NULL;
	}
	CHECK(entered == 100000);
	CHECK(core_bytes(&world->core) < 10000000 - (1 << 20)); /* less the ring */
	CHECK(sizeof(struct entry) + sizeof(struct node) <= 64);
	CHECK(world->core.template_count == 1);
	run_until(world, BEGAN_MS + 2100, TICK_MS);
	CHECK(world->sent[REPEAT] == 3 * entered && world->sent[REFUSE] == entered);
	for (uint32_t i = 0; i < world->count; i++)
		CHECK(bucket_room(&world->buckets[i]) == WAYS);
	end_world(world);
}

static void test_too_many_forms_pass(void)
{
	uint8_t frame[MOST_FRAME];
	struct world *world = new_world(10000);
	world->at_ms = BEGAN_MS;
	for (uint32_t i = 0; i < 5000; i++) {
		uint16_t size = make_syn(frame, true, (uint16_t)(i + 1), TOKEN, 2), window = (uint16_t)i;
		memcpy(frame + 54 + 14, &window, 2);
		begin(world, frame, size, SPACING_MS, 0);
	}
	CHECK(world->core.template_count == MOST_TEMPLATES && world->core.unlike == 5000 - MOST_TEMPLATES);
	run_until(world, BEGAN_MS + 2100, TICK_MS);
	CHECK(world->sent[REFUSE] == MOST_TEMPLATES && world->core.template_count == 0);
	begin(world, frame, make_syn(frame, true, 1, TOKEN, 2), SPACING_MS, 0);
	CHECK(world->core.template_count == 1);
	end_world(world);
}

/* A frame that can't be repeated has no slot in the table. */
static void test_odd_frame_takes_no_slot(void)
{
	uint8_t frame[MOST_FRAME];
	struct world *world = new_world(10);
	world->at_ms = BEGAN_MS;
	uint16_t size = make_syn(frame, false, 40000, TOKEN, 2);
	frame[14] = 0x46;
	struct entry *entry = begin(world, frame, size, SPACING_MS, 0);
	CHECK(entry->tag == FREE && world->core.unlike == 1 && world->core.waiting == 0);
	end_world(world);
}

/* Random bytes cause no step out of bounds, and nothing that is never forgotten. */
static void test_garbage(void)
{
	uint8_t frame[MOST_FRAME];
	struct world *world = new_world(64);
	srand(17);
	world->at_ms = BEGAN_MS;
	for (unsigned int i = 0; i < 200000; i++) {
		uint16_t size = (i % 3 ? make_syn : make_init)(frame, i % 2, (uint16_t)rand(), (uint32_t)rand(), (uint8_t)rand());
		for (int j = rand() % 4; j > 0; j--)
			frame[rand() % size] = (uint8_t)rand();
		if (rand() % 8 == 0)
			size = (uint16_t)(rand() % (MOST_FRAME + 100));
		uint32_t slot = (uint32_t)rand() % (world->core.slots + 10);
		struct notice notice = {.slot = slot, .interface = 7, .size = size, .began_ms = (uint32_t)world->at_ms};
		notice.token = (uint32_t)rand() % 4;
		if (slot < world->core.slots && rand() % 2) {
			struct entry *entry = &world->buckets[slot / WAYS].entries[slot % WAYS];
			entry->tag = (uint32_t)rand() % 4;
			entry->token = (uint32_t)rand() % 4;
			entry->began_ms = (uint32_t)world->at_ms;
		}
		core_take(&world->core, &notice, frame, (uint32_t)(50 + rand() % 450), world->at_ms);
		if (i % 16 == 0)
			run_until(world, world->at_ms + (uint64_t)(rand() % 40), TICK_MS);
	}
	CHECK(world->sent[REPEAT] > 100 && world->sent[REFUSE] > 10);
	run_until(world, world->at_ms + 5000, TICK_MS);
	CHECK(world->core.waiting == 0 && world->core.template_count == 0);
	end_world(world);
}

int main(void)
{
	for (unsigned int kind = 0; kind < 8; kind++)
		test_silent_server(kind & 1, kind & 2, kind & 4 ? 0x2064 : 0);
	CHECK(crc32c((const uint8_t *)"123456789", 9) == 0xe3069283u);
	test_answer_ends_it();
	test_slot_taken_again();
	test_learned_spacing();
	test_standstill();
	test_clock_that_wraps();
	test_hundred_thousand_have_room();
	test_too_many_forms_pass();
	test_odd_frame_takes_no_slot();
	test_garbage();
	puts("all as it should be");
	return 0;
}
