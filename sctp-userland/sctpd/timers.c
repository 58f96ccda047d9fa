#include "timers.h"

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>

#include "loop.h"
#include "usrsctp_internal.h"

#define CALLOUT_ACTIVE 2
#define CALLOUT_PENDING 4

struct entry {
	uint64_t due_ms;
	struct callout *timer;
};

/* A binary heap, the next one due first. Each timer keeps its position in it. */
static struct entry *heap;
static uintptr_t count, room;

static void put(uintptr_t position, struct entry entry)
{
	heap[position] = entry;
	entry.timer->position = position;
}

static void move_up(uintptr_t position, struct entry entry)
{
	while (position > 0 && heap[(position - 1) / 2].due_ms > entry.due_ms) {
		put(position, heap[(position - 1) / 2]);
		position = (position - 1) / 2;
	}
	put(position, entry);
}

static void move_down(uintptr_t position, struct entry entry)
{
	for (;;) {
		uintptr_t child = 2 * position + 1;

		if (child + 1 < count && heap[child + 1].due_ms < heap[child].due_ms)
			child++;
		if (child >= count || heap[child].due_ms >= entry.due_ms)
			break;
		put(position, heap[child]);
		position = child;
	}
	put(position, entry);
}

static void take_out(uintptr_t position)
{
	struct entry last = heap[--count];

	if (position == count)
		return;
	if (position > 0 && heap[(position - 1) / 2].due_ms > last.due_ms)
		move_up(position, last);
	else
		move_down(position, last);
}

int sctp_os_timer_start(struct callout *timer, uint32_t ticks, void (*function)(void *), void *argument)
{
	int was_pending = timer != NULL && timer->flags & CALLOUT_PENDING;

	if (timer == NULL || function == NULL)
		return 0;
	if (was_pending)
		take_out(timer->position);
	if (count == room) {
		uintptr_t larger = room != 0 ? room * 2 : 256;
		struct entry *grown = realloc(heap, larger * sizeof(*heap));

		if (grown == NULL)
			abort(); /* an association without its timers would hang for ever */
		heap = grown;
		room = larger;
	}
	timer->argument = argument;
	timer->function = function;
	timer->flags = CALLOUT_ACTIVE | CALLOUT_PENDING;
	count++;
	move_up(count - 1, (struct entry){ loop_now_ms() + (ticks != 0 ? ticks : 1), timer });
	return was_pending;
}

int sctp_os_timer_stop(struct callout *timer)
{
	int was_pending = timer->flags & CALLOUT_PENDING;

	if (was_pending)
		take_out(timer->position);
	timer->flags &= ~(CALLOUT_ACTIVE | CALLOUT_PENDING);
	return was_pending != 0;
}

uint32_t sctp_get_tick_count(void)
{
	return (uint32_t)loop_now_ms();
}

int timers_run(void)
{
	uint64_t now_ms = loop_now_ms();

	while (count > 0 && heap[0].due_ms <= now_ms) {
		struct callout *timer = heap[0].timer;

		take_out(0);
		timer->flags &= ~CALLOUT_PENDING;
		timer->function(timer->argument);
	}
	if (count == 0)
		return -1;
	now_ms = loop_now_ms();
	if (heap[0].due_ms <= now_ms)
		return 0;
	return heap[0].due_ms - now_ms > INT_MAX ? INT_MAX : (int)(heap[0].due_ms - now_ms);
}
