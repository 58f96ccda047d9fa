/* The limit of questions from one source prefix: its rates, and how deep the names of each zone are. */
#ifndef FASTPATH_LIMIT_H
#define FASTPATH_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "../layout.h"

#define MOST_PER_S 1000000
#define MOST_SLIP 10
#define MOST_DEPTH 127 /* labels of any name */

/* As the backend wants it; a rate of 0 limits nothing. */
struct wanted_limit {
	uint32_t deep_per_s, all_per_s;
	uint8_t ipv4_prefix_bits, ipv6_prefix_bits;
	uint16_t slip;
};

struct limiter {
	int zones; /* the map's file descriptor */
	struct settings *settings;
	uint32_t with_labels[256], with_depth[256]; /* the known zones by this number */
	uint32_t count;				    /* of known zones */
	bool is_told_full;
};

/* Limit from now on by these rates. */
void limit_set(struct limiter *limiter, const struct wanted_limit *wanted);

/* The labels of a zone's deepest name; 0: nothing is known of it any more. False: there is no room. */
bool limit_zone(struct limiter *limiter, const struct zone *zone, uint8_t depth);

/* Limit nothing, and forget all zones. */
void limit_clear(struct limiter *limiter);

#endif
