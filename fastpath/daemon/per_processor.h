#pragma once
/* Counters that a BPF program keeps for each processor, put together. ppu-guard includes this, too. */

#include <stdint.h>
#include <stdlib.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

/* Reads the `count` counters of the map `counters` into `totals`; one that can't be read is 0. */
static inline void sum_per_processor(int counters, uint32_t count, uint64_t *totals)
{
	int processors = libbpf_num_possible_cpus();
	uint64_t *each = calloc(processors > 0 ? (size_t)processors : 1, sizeof(*each));
	for (uint32_t counter = 0; counter < count; counter++) {
		totals[counter] = 0;
		if (!each || bpf_map_lookup_elem(counters, &counter, each))
			continue;
		for (int i = 0; i < processors; i++)
			totals[counter] += each[i];
	}
	free(each);
}
