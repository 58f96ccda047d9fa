/* The BPF program guard.bpf.c: loading it, attaching it to interfaces, its maps. */
#ifndef GUARD_PROGRAM_H
#define GUARD_PROGRAM_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

#include "layout.h"

#define MOST_INTERFACES 64

struct interface {
	char name[IF_NAMESIZE];
	unsigned int index; /* where it is attached; 0: nowhere */
	char problem[128];
};

struct program {
	struct bpf_object *object;
	int in, out, counters, destinations, notices;
	struct interface interfaces[MOST_INTERFACES];
	unsigned int interface_count;
	struct settings *settings;
	struct member *members;
	struct bucket *buckets;
};

/* Load it, with a table of this number of buckets. NULL, or what is wrong. */
const char *program_load(struct program *program, uint32_t buckets);

/* Attach it wherever it is not; how many interfaces have it. */
unsigned int program_attach(struct program *program);
void program_detach(struct program *program);
void program_count(const struct program *program, uint64_t totals[COUNTER_COUNT]);

#endif
