/* The classes of askers, by network: blocks in the map that the BPF program reads. */
#ifndef FASTPATH_NEAR_H
#define FASTPATH_NEAR_H

#include <stdbool.h>
#include <stdint.h>

#include "../layout.h"

#define MOST_CLASSES_NUMBERS 1024

/* A prefix of askers and their class, as the backend tells it. */
struct near_block {
	uint16_t asker_class;
	uint8_t version, length;
	uint8_t address[16];
};

struct near {
	int blocks; /* the map's file descriptor */
	uint16_t owner; /* the number of the lease of the backend that tells them */
	enum { UNTOLD, TOLD_WHOLE, BROKEN, FORGOTTEN } states[MOST_CLASSES_NUMBERS];
	bool is_dirty; /* blocks are there that nothing looks for */
	bool is_sweeping, is_dirty_again;
	struct block at; /* of the sweep */
	uint32_t count; /* of blocks */
};

/* The classes of this number; 0: there are none, or not all of their blocks found room. */
uint32_t near_classes(const struct near *near, uint16_t number);

/* False: there is no room for them, nor for those of this number that come later. */
bool near_add(struct near *near, uint16_t number, const struct near_block *blocks, uint32_t count);

void near_forget(struct near *near, uint16_t number);

/* A backend begins, which has this lease: what others told is removed by the next sweep. */
void near_begin(struct near *near, uint16_t owner);

/* Remove some of the blocks that nothing looks for. Returns whether there is more to do. */
bool near_sweep(struct near *near);

#endif
