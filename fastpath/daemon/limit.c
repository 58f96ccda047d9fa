#include "limit.h"

#include <arpa/inet.h>
#include <string.h>

#include <bpf/bpf.h>

#define SECOND_NS 1000000000ull

static uint64_t interval_ns(uint32_t per_s) { return per_s ? SECOND_NS / per_s : 0; }

void limit_set(struct limiter *limiter, const struct wanted_limit *wanted)
{
	struct limit *limit = &limiter->settings->limit;
	/* The program reads nothing of it while slip is 0. */
	__atomic_store_n(&limit->slip, 0, __ATOMIC_SEQ_CST);
	limit->deep_interval_ns = interval_ns(wanted->deep_per_s);
	limit->all_interval_ns = interval_ns(wanted->all_per_s);
	limit->ipv4_mask = htonl(wanted->ipv4_prefix_bits ? ~0u << (32 - wanted->ipv4_prefix_bits) : 0);
	uint8_t mask[16] = {0};
	for (int bit = 0; bit < wanted->ipv6_prefix_bits; bit++)
		mask[bit / 8] |= (uint8_t)(0x80 >> bit % 8);
	memcpy(limit->ipv6_mask, mask, sizeof(mask));
	if (wanted->deep_per_s || wanted->all_per_s)
		__atomic_store_n(&limit->slip, wanted->slip, __ATOMIC_SEQ_CST);
}

static uint8_t labels_of(const struct zone *zone)
{
	const uint8_t *name = (const uint8_t *)zone->name;
	uint8_t labels = 0;
	for (size_t at = 0; at < NAME_BYTES && name[at]; at += (size_t)name[at] + 1)
		labels++;
	return labels;
}

static void tell_bounds(struct limiter *limiter)
{
	struct limit *limit = &limiter->settings->limit;
	uint32_t least = 0, most = 0, depth = UINT32_MAX;
	for (uint32_t i = 256; i-- > 0;) {
		if (limiter->with_labels[i])
			least = i;
		if (limiter->with_depth[i])
			depth = i;
	}
	for (uint32_t i = 0; i < 256; i++)
		if (limiter->with_labels[i])
			most = i;
	limit->least_zone_labels = (uint8_t)least;
	limit->most_zone_labels = (uint8_t)most;
	limit->least_depth = depth;
}

bool limit_zone(struct limiter *limiter, const struct zone *zone, uint8_t depth)
{
	uint8_t labels = labels_of(zone);
	uint32_t before, now = depth;
	if (bpf_map_lookup_elem(limiter->zones, zone, &before) == 0) {
		limiter->with_labels[labels]--;
		limiter->with_depth[before & 0xff]--;
		limiter->count--;
		if (!depth)
			bpf_map_delete_elem(limiter->zones, zone);
	}
	bool has_room = !depth || bpf_map_update_elem(limiter->zones, zone, &now, BPF_ANY) == 0;
	if (depth && has_room) {
		limiter->with_labels[labels]++;
		limiter->with_depth[depth]++;
		limiter->count++;
	}
	tell_bounds(limiter);
	return has_room;
}

void limit_clear(struct limiter *limiter)
{
	struct wanted_limit none = {.slip = 1};
	struct zone zone;
	limit_set(limiter, &none);
	while (bpf_map_get_next_key(limiter->zones, NULL, &zone) == 0 && bpf_map_delete_elem(limiter->zones, &zone) == 0)
		;
	memset(limiter->with_labels, 0, sizeof(limiter->with_labels));
	memset(limiter->with_depth, 0, sizeof(limiter->with_depth));
	limiter->count = 0;
	tell_bounds(limiter);
}
