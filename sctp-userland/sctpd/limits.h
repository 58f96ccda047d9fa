/* How much all clients together may have. They trust each other: those who don't have a network namespace, and so an sctpd, of their own. */
#ifndef LIMITS_H
#define LIMITS_H

#include <stdbool.h>
#include <stdint.h>

struct limits {
	long sockets, connections;
	uint64_t memory; /* bytes */
};
extern struct limits limits;

/* Whether the memory is used up: then nothing more is queued, no association begins, and packets that bring either are dropped, as by a full
 * router. */
bool limits_reached(void);

/* Tell the operator which limit refuses something, if it is one; each again after a minute at the earliest. Return whether it is. */
enum limit { LIMIT_SOCKETS, LIMIT_CONNECTIONS, LIMIT_DESCRIPTORS, LIMIT_ADDRESSES };
bool limits_refuse(enum limit which, bool refuses);

/* Take note of bytes that came, went, or were taken for something: now and then the use is measured. */
void limits_note(uint64_t bytes);

/* Measure again while it is used up. */
void limits_run(void);

/* The time until that is due next, in ms; -1: never. */
int limits_next_ms(void);

#endif
