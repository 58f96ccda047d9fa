#include "table.h"

#include <linux/membarrier.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bpf/bpf.h>

#define INVISIBLE UINT64_MAX /* the generation of a half that is being written */

static int places_open(struct places *places, uint32_t capacity)
{
	places->free = calloc(capacity, sizeof(*places->free));
	places->resting = calloc(capacity, sizeof(*places->resting));
	if (!places->free || !places->resting)
		return -1;
	places->capacity = places->free_count = capacity;
	for (uint32_t i = 0; i < capacity; i++)
		places->free[i] = capacity - 1 - i;
	return 0;
}

bool table_can_wait(void) { return syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) == 0; }

/* After a grace period of the kernel, for some ten milliseconds, no program reads those that rest. */
static void wait_for_resting(struct places *places)
{
	if (places->resting_count == 0 || !table_can_wait())
		return;
	memcpy(places->free + places->free_count, places->resting, places->resting_count * sizeof(*places->free));
	places->free_count += places->resting_count;
	places->resting_count = 0;
}

/* A place that no program reads; NONE when there is none. Waits only where table_tidy() had no time to. */
static uint32_t take(struct places *places)
{
	if (places->free_count == 0)
		wait_for_resting(places);
	return places->free_count ? places->free[--places->free_count] : NONE;
}

static bool runs_low(const struct places *places)
{
	return places->free_count < places->capacity / 2 && places->resting_count > places->free_count / 4;
}

void table_tidy(struct table *table)
{
	if (runs_low(&table->answer_places))
		wait_for_resting(&table->answer_places);
	if (runs_low(&table->entry_places))
		wait_for_resting(&table->entry_places);
}

static void rest(struct places *places, uint32_t place) { places->resting[places->resting_count++] = place; }

int table_open(struct table *table, uint32_t name_count, uint32_t answer_count)
{
	table->owned = calloc(name_count, 2 * sizeof(*table->owned));
	table->in_use = calloc(name_count, sizeof(*table->in_use));
	table->changed = calloc(name_count, sizeof(*table->changed));
	if (!table->owned || !table->in_use || !table->changed || places_open(&table->entry_places, name_count) ||
	    places_open(&table->answer_places, answer_count))
		return -1;
	return 0;
}

/* The half that counts when all is visible. As the BPF program chooses it. */
static int latest(const struct entry *entry) { return entry->generation[0] > entry->generation[1] ? 0 : 1; }

static void release(struct table *table, uint32_t place, int half)
{
	uint32_t *owned = &table->owned[2 * place + half];
	for (uint32_t i = 0; i < *owned; i++)
		rest(&table->answer_places, table->entries[place].answers[half][i]);
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

/* The place of a new name, or NONE. */
static uint32_t add(struct table *table, const struct question *question)
{
	uint32_t place = take(&table->entry_places);
	if (place == NONE)
		return NONE;
	memset(&table->entries[place], 0, sizeof(table->entries[place]));
	table->entries[place].question = *question;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (bpf_map_update_elem(table->names, question, &place, BPF_ANY)) {
		table->entry_places.free[table->entry_places.free_count++] = place;
		return NONE;
	}
	table->in_use[place] = true;
	table->count++;
	return place;
}

static void write_half(struct table *table, uint32_t place, const struct variant *variants, uint32_t count)
{
	struct entry *entry = &table->entries[place];
	uint64_t pending = table->settings->generation + 1;
	int half = latest(entry);
	if (entry->generation[half] != pending) {
		half = !half;
		table->changed[table->changed_count++] = place;
	}
	__atomic_store_n(&entry->generation[half], INVISIBLE, __ATOMIC_SEQ_CST);
	release(table, place, half);
	uint32_t written = 0;
	for (; written < count; written++) {
		uint32_t at = take(&table->answer_places);
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
	table->owned[2 * place + half] = written;
	/* A part of the variants would not be drawn by weight: rather none. */
	entry->variants[half] = written == count ? count : 0;
	__atomic_store_n(&entry->generation[half], pending, __ATOMIC_SEQ_CST);
}

void table_put(struct table *table, const struct question *question, const struct variant *variants, uint32_t count)
{
	uint32_t place;
	if (bpf_map_lookup_elem(table->names, question, &place)) {
		if (count == 0)
			return;
		place = add(table, question);
	}
	if (place == NONE)
		table->refused++;
	else
		write_half(table, place, variants, count);
}

void table_clear(struct table *table)
{
	for (uint32_t place = 0; place < table->entry_places.capacity; place++)
		if (table->in_use[place])
			write_half(table, place, NULL, 0);
}

uint32_t table_commit(struct table *table)
{
	__atomic_store_n(&table->settings->generation, table->settings->generation + 1, __ATOMIC_SEQ_CST);
	for (uint32_t i = 0; i < table->changed_count; i++) {
		uint32_t place = table->changed[i];
		struct entry *entry = &table->entries[place];
		int half = latest(entry);
		release(table, place, !half);
		if (entry->variants[half] == 0) {
			release(table, place, half);
			bpf_map_delete_elem(table->names, &entry->question);
			table->in_use[place] = false;
			table->count--;
			rest(&table->entry_places, place);
		}
	}
	uint32_t refused = table->refused;
	table->changed_count = table->refused = 0;
	return refused;
}
