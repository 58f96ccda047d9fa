/*
 * The ready answers in the maps that the BPF program reads: changes are gathered, and become visible all at once.
 *
 * It writes to memory that the kernel shares; only which names there are goes through system calls.
 */
#ifndef FASTPATH_TABLE_H
#define FASTPATH_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../layout.h"

/* Places of a map, each either in use, free, or resting: a program that runs now may still read a resting one. */
struct slots {
	uint32_t *free;
	uint32_t *resting;
	uint32_t free_count, resting_count, capacity;
};

struct table {
	int names; /* the map's file descriptor */
	struct settings *settings;
	struct entry *entries;
	struct answer *answers;
	struct slots entry_slots, answer_slots;
	uint32_t *owned;   /* for each half of each entry: the answers that are its own */
	bool *in_use;	   /* for each entry */
	uint32_t *changed; /* entries written since the last commit */
	uint32_t changed_count;
	uint32_t refused; /* names without a slot, since the last commit */
	uint32_t count;	  /* of names */
};

/* One ready answer, as it came over the socket. */
struct variant {
	uint16_t answers, additional, size;
	const uint8_t *bytes;
};

/* Returns 0, or -1 without memory. The maps are empty. */
int table_open(struct table *table, uint32_t name_count, uint32_t answer_count);

/*
 * The name gets these answers at the next commit; none: no answer any more. A name that finds no slot gets none. Askers of a class of
 * their own among the `classes` get other answers; 0: all get these.
 */
void table_put(struct table *table, const struct question *question, uint32_t classes, const struct variant *variants,
	       uint32_t count);

/* No name has an answer any more, at the next commit. */
void table_clear(struct table *table);

/* Make visible what was put. Returns how many names found no slot. */
uint32_t table_commit(struct table *table);

/* When nothing else is to be done: wait for slots to be free again, so that no change has to. */
void table_tidy(struct table *table);

/* Whether the kernel can tell when no program runs any more that ran a moment ago. */
bool table_can_wait(void);

#endif
