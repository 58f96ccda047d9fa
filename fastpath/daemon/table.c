#include "table.h"

#include <linux/membarrier.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bpf/bpf.h>

#define INVISIBLE UINT64_MAX /* the generation of a half that is being written */

static int slots_open(struct slots *slots, uint32_t capacity)
{
	slots->free = calloc(capacity, sizeof(*slots->free));
	slots->resting = calloc(capacity, sizeof(*slots->resting));
	if (!slots->free || !slots->resting)
		return -1;
	slots->capacity = slots->free_count = capacity;
	for (uint32_t i = 0; i < capacity; i++)
		slots->free[i] = capacity - 1 - i;
	return 0;
}

bool table_can_wait(void) { return syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) == 0; }

/* After a grace period of the kernel, for some ten milliseconds, no program reads those that rest. */
static void wait_for_resting(struct slots *slots)
{
	if (slots->resting_count == 0 || !table_can_wait())
		return;
	memcpy(slots->free + slots->free_count, slots->resting, slots->resting_count * sizeof(*slots->free));
	slots->free_count += slots->resting_count;
	slots->resting_count = 0;
}

/* A slot that no program reads; NONE when there is none. Waits only where table_tidy() had no time to. */
static uint32_t take(struct slots *slots)
{
	if (slots->free_count == 0)
		wait_for_resting(slots);
	return slots->free_count ? slots->free[--slots->free_count] : NONE;
}

static bool runs_low(const struct slots *slots)
{
	return slots->free_count < slots->capacity / 2 && slots->resting_count > slots->free_count / 4;
}

void table_tidy(struct table *table)
{
	if (runs_low(&table->answer_slots))
		wait_for_resting(&table->answer_slots);
	if (runs_low(&table->entry_slots))
		wait_for_resting(&table->entry_slots);
}

static void rest(struct slots *slots, uint32_t slot) { slots->resting[slots->resting_count++] = slot; }

int table_open(struct table *table, uint32_t name_count, uint32_t answer_count)
{
	table->owned = calloc(name_count, 2 * sizeof(*table->owned));
	table->in_use = calloc(name_count, sizeof(*table->in_use));
	table->changed = calloc(name_count, sizeof(*table->changed));
	if (!table->owned || !table->in_use || !table->changed || slots_open(&table->entry_slots, name_count) ||
	    slots_open(&table->answer_slots, answer_count))
		return -1;
	return 0;
}

/* The half that counts when all is visible. As the BPF program chooses it. */
static int latest(const struct entry *entry) { return entry->generation[0] > entry->generation[1] ? 0 : 1; }

static void release(struct table *table, uint32_t slot, int half)
{
	uint32_t *owned = &table->owned[2 * slot + half];
	for (uint32_t i = 0; i < *owned; i++)
		rest(&table->answer_slots, table->entries[slot].answers[half][i]);
	*owned = 0;
}

static uint16_t checksum(const uint8_t *bytes, size_t size)
{
	uint32_t sum = 0;
	for (size_t i = 0; i < size; i += 2) {
		uint16_t word;
		memcpy(&word, bytes + i, 2); /* they are padded with zeros */
		sum += word;
	}
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)((sum & 0xffff) + (sum >> 16));
}

/* The slot of a new name, or NONE. */
static uint32_t add(struct table *table, const struct question *question)
{
	uint32_t slot = take(&table->entry_slots);
	if (slot == NONE)
		return NONE;
	memset(&table->entries[slot], 0, sizeof(table->entries[slot]));
	table->entries[slot].question = *question;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (bpf_map_update_elem(table->names, question, &slot, BPF_ANY)) {
		table->entry_slots.free[table->entry_slots.free_count++] = slot;
		return NONE;
	}
	table->in_use[slot] = true;
	table->count++;
	return slot;
}

static void write_half(struct table *table, uint32_t slot, uint32_t classes, const struct variant *variants, uint32_t count)
{
	struct entry *entry = &table->entries[slot];
	uint64_t pending = table->settings->generation + 1;
	int half = latest(entry);
	if (entry->generation[half] != pending) {
		half = !half;
		table->changed[table->changed_count++] = slot;
	}
	__atomic_store_n(&entry->generation[half], INVISIBLE, __ATOMIC_SEQ_CST);
	release(table, slot, half);
	uint32_t written = 0;
	for (; written < count; written++) {
		uint32_t at = take(&table->answer_slots);
		if (at == NONE)
			break;
		struct answer *answer = &table->answers[at];
		memset(answer, 0, sizeof(*answer));
		answer->size = variants[written].size;
		answer->answers = variants[written].answers;
		answer->additional = variants[written].additional;
		memcpy(answer->bytes, variants[written].bytes, variants[written].size);
		answer->checksum = checksum(answer->bytes, answer->size);
		entry->answers[half][written] = at;
	}
	if (written < count)
		table->refused++;
	table->owned[2 * slot + half] = written;
	entry->classes[half] = classes;
	/* A part of the variants would not be drawn by weight: rather none. */
	entry->variants[half] = written == count ? count : 0;
	__atomic_store_n(&entry->generation[half], pending, __ATOMIC_SEQ_CST);
}

void table_put(struct table *table, const struct question *question, uint32_t classes, const struct variant *variants,
	       uint32_t count)
{
	uint32_t slot;
	if (bpf_map_lookup_elem(table->names, question, &slot)) {
		if (count == 0)
			return;
		slot = add(table, question);
	}
	if (slot == NONE)
		table->refused++;
	else
		write_half(table, slot, classes, variants, count);
}

void table_clear(struct table *table)
{
	for (uint32_t slot = 0; slot < table->entry_slots.capacity; slot++)
		if (table->in_use[slot])
			write_half(table, slot, 0, NULL, 0);
}

uint32_t table_commit(struct table *table)
{
	__atomic_store_n(&table->settings->generation, table->settings->generation + 1, __ATOMIC_SEQ_CST);
	for (uint32_t i = 0; i < table->changed_count; i++) {
		uint32_t slot = table->changed[i];
		struct entry *entry = &table->entries[slot];
		int half = latest(entry);
		release(table, slot, !half);
		if (entry->variants[half] == 0) {
			release(table, slot, half);
			bpf_map_delete_elem(table->names, &entry->question);
			table->in_use[slot] = false;
			table->count--;
			rest(&table->entry_slots, slot);
		}
	}
	uint32_t refused = table->refused;
	table->changed_count = table->refused = 0;
	return refused;
}
