/*
 * The set-ups that wait for an answer, in time: which are repeated, and which refused. Sans-IO: notices and `now` in,
 * frames out; the table is shared with guard.bpf.c, which enters set-ups and ends those that are answered.
 *
 * A set-up costs 32 bytes in the table and 24 here. The bytes of its SYN that others have, too (nearly all), stand once
 * for all of them, in a template.
 */
#ifndef GUARD_CORE_H
#define GUARD_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "frame.h"
#include "layout.h"

#define SPACING_MS 500
#define LEAST_SPACING_MS 50 /* a busy server may take that long to answer, however near it is */
#define TRIES 4 /* the SYN and three repetitions; then it is refused */
#define TICK_MS 4
#define TICKS 1024 /* of the wheel: more than TRIES * SPACING_MS */
#define MOST_TEMPLATES 4096

struct node {
	uint32_t next, previous; /* in a slot of the wheel; of both, numbers of nodes or, above them, of slots */
	uint32_t token;		 /* the entry that it was made for has it */
	struct varying varying;
	uint16_t template;
	uint16_t spacing_ms;
};

struct template {
	struct template *next;
	uint32_t hash, users;
	uint32_t interface;
	uint16_t member, vlan, is_tagged, size, number;
	struct shape shape;
	uint8_t frame[];
};

enum act { REPEAT, REFUSE };

/* Sends a frame out of the interface; repetitions are marked, to come in there. */
typedef void send_frame(void *to, enum act act, uint32_t interface, const uint8_t *frame, uint16_t size);

struct core {
	struct bucket *buckets;
	struct node *nodes;
	uint32_t slots;
	uint32_t waiting; /* nodes in the wheel, answered ones that were not looked at yet included */
	uint64_t tick;
	uint32_t secret; /* forms of SYN can't be chosen to be alike */
	uint32_t wheel[TICKS]; /* the first node of each */
	struct template *templates[MOST_TEMPLATES], *by_hash[MOST_TEMPLATES];
	uint32_t template_count, free_from;
	uint64_t repeated, refused, unlike; /* unlike: passed, as there are too many forms of SYN at a time */
	send_frame *send;
	void *to;
};

/* How many buckets a table for this number of set-ups at a time has. */
uint32_t core_buckets(uint32_t pending);

/* Begin, with a table of this number of buckets. 0, or -1 without memory. */
int core_open(struct core *core, struct bucket *buckets, uint32_t count, uint64_t now_ms, send_frame *send, void *to);
void core_close(struct core *core);

/* Read a record of the ring: its notice, and the frame behind it. False when it is none. */
bool notice_read(const void *record, size_t size, struct notice *notice, const uint8_t **frame);

/* Take note of a set-up that was entered into the table; repeat it every `spacing_ms` from its begin. */
void core_take(struct core *core, const struct notice *notice, const uint8_t *frame, uint32_t spacing_ms,
	       uint64_t now_ms);

/* Repeat and refuse what is due. */
void core_advance(struct core *core, uint64_t now_ms);

/* The spacing that a learned round trip gives, 0 for none. */
uint32_t core_spacing_ms(uint32_t round_trip_us);

/* Bytes in memory, the table included. */
uint64_t core_bytes(const struct core *core);

#endif
