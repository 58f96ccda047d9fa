#include "core.h"

#include <stdlib.h>
#include <string.h>

#define NOWHERE 0xffffffffu
/* After a standstill the rest of the wheel has its turn in the next second: what is repeated now goes there. */
#define MOST_BEHIND (TICKS - 256)

uint32_t core_buckets(uint32_t pending)
{
	return (uint32_t)(((uint64_t)pending * 140 / 100 + WAYS - 1) / WAYS); /* fuller, two buckets of eight may have no room */
}

uint32_t core_spacing_ms(uint32_t round_trip_us)
{
	uint64_t learned = (uint64_t)round_trip_us * 3 / 2000 + 1;
	if (!round_trip_us || learned > SPACING_MS)
		return SPACING_MS;
	return learned < LEAST_SPACING_MS ? LEAST_SPACING_MS : (uint32_t)learned;
}

int core_open(struct core *core, struct bucket *buckets, uint32_t count, uint64_t now_ms, send_frame *send, void *to)
{
	memset(core, 0, sizeof(*core));
	core->buckets = buckets;
	core->slots = count * WAYS;
	core->nodes = malloc(sizeof(*core->nodes) * core->slots);
	if (!core->nodes)
		return -1;
	for (uint32_t i = 0; i < core->slots; i++)
		core->nodes[i].next = core->nodes[i].previous = NOWHERE;
	for (uint32_t i = 0; i < TICKS; i++)
		core->wheel[i] = NOWHERE;
	core->tick = now_ms / TICK_MS;
	core->send = send;
	core->to = to;
	return 0;
}

void core_close(struct core *core)
{
	for (uint32_t i = 0; i < MOST_TEMPLATES; i++)
		free(core->templates[i]);
	free(core->nodes);
	core->nodes = NULL;
}

uint64_t core_bytes(const struct core *core)
{
	uint64_t bytes = (sizeof(struct entry) + sizeof(struct node)) * (uint64_t)core->slots + sizeof(*core);
	for (uint32_t i = 0; i < MOST_TEMPLATES; i++)
		if (core->templates[i])
			bytes += sizeof(struct template) + core->templates[i]->size;
	return bytes;
}

/* Templates */

static uint32_t hash_of(const struct core *core, const struct notice *notice, const uint8_t *frame)
{
	uint32_t hash = 2166136261u ^ core->secret ^ notice->interface ^ (uint32_t)notice->vlan << 16 ^ notice->member;
	for (uint16_t i = 0; i < notice->size; i++)
		hash = (hash ^ frame[i]) * 16777619u;
	return hash ^ hash >> 15;
}

static struct template *find_template(struct core *core, const struct notice *notice, const uint8_t *frame,
				      uint32_t hash)
{
	struct template *one = core->by_hash[hash % MOST_TEMPLATES];
	while (one && !(one->hash == hash && one->size == notice->size && one->interface == notice->interface &&
			one->vlan == notice->vlan && one->is_tagged == notice->is_tagged &&
			one->member == notice->member && memcmp(one->frame, frame, notice->size) == 0))
		one = one->next;
	return one;
}

static struct template *make_template(struct core *core, const struct notice *notice, const uint8_t *frame,
				      const struct shape *shape, uint32_t hash)
{
	if (core->template_count == MOST_TEMPLATES)
		return NULL;
	struct template *one = malloc(sizeof(*one) + notice->size);
	if (!one)
		return NULL;
	while (core->templates[core->free_from])
		core->free_from = (core->free_from + 1) % MOST_TEMPLATES;
	*one = (struct template){.next = core->by_hash[hash % MOST_TEMPLATES],
				 .hash = hash,
				 .interface = notice->interface,
				 .member = notice->member,
				 .vlan = notice->vlan,
				 .is_tagged = notice->is_tagged,
				 .size = notice->size,
				 .number = (uint16_t)core->free_from,
				 .shape = *shape};
	memcpy(one->frame, frame, notice->size);
	core->by_hash[hash % MOST_TEMPLATES] = core->templates[one->number] = one;
	core->template_count++;
	return one;
}

static void leave_template(struct core *core, uint16_t number)
{
	struct template *one = core->templates[number];
	if (--one->users)
		return;
	struct template **link = &core->by_hash[one->hash % MOST_TEMPLATES];
	while (*link != one)
		link = &(*link)->next;
	*link = one->next;
	core->templates[number] = NULL;
	core->template_count--;
	free(one);
}

/* The wheel: the previous of a first node is the number of its slot, above all nodes. */

static void link_node(struct core *core, uint32_t slot, uint64_t due_ms)
{
	uint64_t tick = due_ms / TICK_MS + 1; /* never the one that is being done */
	uint32_t *first = &core->wheel[tick % TICKS];
	core->nodes[slot].next = *first;
	core->nodes[slot].previous = core->slots + (uint32_t)(tick % TICKS);
	if (*first != NOWHERE)
		core->nodes[*first].previous = slot;
	*first = slot;
	core->waiting++;
}

static void unlink_node(struct core *core, uint32_t slot)
{
	struct node *node = &core->nodes[slot];
	if (node->previous >= core->slots)
		core->wheel[node->previous - core->slots] = node->next;
	else
		core->nodes[node->previous].next = node->next;
	if (node->next != NOWHERE)
		core->nodes[node->next].previous = node->previous;
	node->next = node->previous = NOWHERE;
	core->waiting--;
}

static void drop_node(struct core *core, uint32_t slot)
{
	unlink_node(core, slot);
	leave_template(core, core->nodes[slot].template);
}

static struct entry *entry_at(struct core *core, uint32_t slot)
{
	return &core->buckets[slot / WAYS].entries[slot % WAYS];
}

/* Copy an entry that others may end, and fill anew, meanwhile; whether the copy is the set-up with this token. */
static bool copy_entry(const struct entry *entry, uint32_t token, struct entry *copy)
{
	uint32_t before = __atomic_load_n(&entry->tag, __ATOMIC_ACQUIRE);
	memcpy(copy, entry, sizeof(*copy));
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	copy->tag = before;
	return before != FREE && before != BUSY && copy->token == token &&
	       __atomic_load_n(&entry->tag, __ATOMIC_ACQUIRE) == before;
}

/* When the next thing is to be done for a set-up, however late it is now. */
static uint64_t due_ms(uint32_t began_ms, uint32_t spacing_ms, uint64_t now_ms)
{
	uint32_t elapsed_ms = (uint32_t)now_ms - began_ms, steps = elapsed_ms / spacing_ms;
	return steps < TRIES ? now_ms + (steps + 1) * spacing_ms - elapsed_ms : now_ms;
}

bool notice_read(const void *record, size_t size, struct notice *notice, const uint8_t **frame)
{
	if (size < sizeof(*notice))
		return false;
	memcpy(notice, record, sizeof(*notice));
	*frame = (const uint8_t *)record + sizeof(*notice);
	return notice->size <= size - sizeof(*notice) && notice->member < MOST_MEMBERS;
}

void core_take(struct core *core, const struct notice *notice, const uint8_t *frame, uint32_t spacing_ms,
	       uint64_t now_ms)
{
	uint8_t common[MOST_FRAME];
	struct entry copy;
	struct shape shape;
	if (notice->slot >= core->slots)
		return;
	struct node *node = &core->nodes[notice->slot];
	if (node->previous != NOWHERE)
		drop_node(core, notice->slot); /* of a set-up that ended: its slot has another one */
	struct entry *entry = entry_at(core, notice->slot);
	if (!copy_entry(entry, notice->token, &copy) || copy.began_ms != notice->began_ms)
		return;
	if (!frame_shape(frame, notice->size, &shape)) { /* its slot is not lost, whatever came in */
		core->unlike += (uint64_t)entry_end(entry, copy.tag);
		return;
	}
	memcpy(common, frame, notice->size);
	frame_take_varying(common, &shape, &node->varying);
	uint32_t hash = hash_of(core, notice, common);
	struct template *template = find_template(core, notice, common, hash);
	if (!template)
		template = make_template(core, notice, common, &shape, hash);
	if (!template) {
		core->unlike += (uint64_t)entry_end(entry, copy.tag);
		return;
	}
	template->users++;
	node->template = template->number;
	node->token = notice->token;
	node->spacing_ms = (uint16_t)spacing_ms;
	link_node(core, notice->slot, due_ms(notice->began_ms, spacing_ms, now_ms));
}

static void send_tagged(struct core *core, enum act act, const struct template *template, uint8_t *frame, uint16_t size)
{
	if (template->is_tagged)
		size = frame_tag(frame, size, template->vlan);
	core->send(core->to, act, template->interface, frame, size);
}

static void act_on(struct core *core, uint32_t slot, uint64_t now_ms)
{
	uint8_t frame[MOST_FRAME + 4], refusal[MOST_RESET];
	struct node *node = &core->nodes[slot];
	struct entry *entry = entry_at(core, slot), copy;
	unlink_node(core, slot);
	if (!copy_entry(entry, node->token, &copy)) {
		leave_template(core, node->template);
		return;
	}
	const struct template *template = core->templates[node->template];
	memcpy(frame, template->frame, template->size);
	frame_fill(frame, template->size, &template->shape, &node->varying, &copy);
	if (((uint32_t)now_ms - copy.began_ms) / node->spacing_ms < TRIES) {
		core->repeated++;
		link_node(core, slot, due_ms(copy.began_ms, node->spacing_ms, now_ms));
		send_tagged(core, REPEAT, template, frame, template->size);
		return;
	}
	if (entry_end(entry, copy.tag)) {
		core->refused++;
		uint16_t size = frame_refusal(frame, &template->shape, refusal);
		send_tagged(core, REFUSE, template, refusal, size);
	}
	leave_template(core, node->template);
}

void core_advance(struct core *core, uint64_t now_ms)
{
	uint64_t now = now_ms / TICK_MS;
	if (now > core->tick + MOST_BEHIND)
		core->tick = now - MOST_BEHIND;
	while (core->tick < now) {
		uint32_t slot = core->wheel[++core->tick % TICKS];
		while (slot != NOWHERE) {
			uint32_t next = core->nodes[slot].next;
			act_on(core, slot, now_ms);
			slot = next;
		}
	}
}
