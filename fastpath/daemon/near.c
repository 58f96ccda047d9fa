#include "near.h"

#include <errno.h>
#include <string.h>

#include <bpf/bpf.h>

#include "table.h"

#define SWEPT_AT_ONCE 256 /* blocks looked at */

static uint32_t identifier(const struct near *near, uint16_t number) { return (uint32_t)near->owner << 16 | number; }

uint32_t near_classes(const struct near *near, uint16_t number)
{
	return number && number < MOST_CLASSES_NUMBERS && near->states[number] == TOLD_WHOLE ? identifier(near, number) : 0;
}

static bool is_wanted(const struct near *near, uint32_t classes)
{
	return classes >> 16 == near->owner && near_classes(near, (uint16_t)classes);
}

static bool add_block(struct near *near, uint32_t classes, const struct near_block *told)
{
	struct block block = {.bits = CLASSES_BITS + told->length, .classes = classes, .version = told->version};
	struct asker_class value = {.number = told->asker_class, .scope = told->length ? told->length : 1};
	memcpy(block.address, told->address, sizeof(block.address));
	bool is_new = bpf_map_update_elem(near->blocks, &block, &value, BPF_NOEXIST) == 0;
	near->count += is_new;
	return is_new || errno == EEXIST;
}

bool near_add(struct near *near, uint16_t number, const struct near_block *blocks, uint32_t count)
{
	while (near->states[number] == FORGOTTEN)
		near_sweep(near);
	if (near->states[number] == BROKEN)
		return false;
	near->states[number] = TOLD_WHOLE;
	for (uint32_t i = 0; i < count; i++) {
		if (add_block(near, identifier(near, number), &blocks[i]))
			continue;
		while (near_sweep(near))
			;
		if (!add_block(near, identifier(near, number), &blocks[i])) {
			near->states[number] = BROKEN;
			near->is_dirty = near->is_dirty_again = true;
			return false;
		}
	}
	return true;
}

void near_forget(struct near *near, uint16_t number)
{
	near->states[number] = FORGOTTEN;
	near->is_dirty = near->is_dirty_again = true;
}

void near_begin(struct near *near, uint16_t owner)
{
	near->owner = owner;
	memset(near->states, 0, sizeof(near->states));
	near->is_dirty = near->is_dirty_again = true;
}

static void end_sweep(struct near *near)
{
	near->is_sweeping = false;
	near->is_dirty = near->is_dirty_again;
	for (int i = 0; !near->is_dirty && i < MOST_CLASSES_NUMBERS; i++)
		if (near->states[i] == FORGOTTEN)
			near->states[i] = UNTOLD;
}

bool near_sweep(struct near *near)
{
	if (!near->is_dirty)
		return false;
	struct block next;
	if (!near->is_sweeping) {
		near->is_dirty_again = false;
		near->is_sweeping = bpf_map_get_next_key(near->blocks, NULL, &near->at) == 0;
		if (near->is_sweeping)
			table_can_wait(); /* for programs that run now, and may look for blocks of before */
		else
			end_sweep(near);
		return near->is_dirty;
	}
	for (int i = 0; i < SWEPT_AT_ONCE; i++) {
		bool is_last = bpf_map_get_next_key(near->blocks, &near->at, &next) != 0;
		if (!is_wanted(near, near->at.classes) && bpf_map_delete_elem(near->blocks, &near->at) == 0)
			near->count--;
		if (is_last) {
			end_sweep(near);
			break;
		}
		near->at = next;
	}
	return near->is_dirty;
}
