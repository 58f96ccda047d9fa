/* In place of libbpf's header: guard.bpf.c as a part of the fuzzer. The functions are in guard.c. */
#ifndef FUZZ_BPF_HELPERS_H
#define FUZZ_BPF_HELPERS_H

#include <linux/types.h>

#define SEC(name)
#define __uint(name, value) int (*name)[value]
#define __type(name, value) __typeof__(value) *name
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))

static void *bpf_map_lookup_elem(void *map, const void *key);
static void *bpf_ringbuf_reserve(void *ring, __u64 size, __u64 flags);
static void bpf_ringbuf_submit(void *record, __u64 flags);
static void bpf_ringbuf_discard(void *record, __u64 flags);
static __u64 bpf_ringbuf_query(void *ring, __u64 what);
static __u64 bpf_ktime_get_ns(void);
static long bpf_skb_load_bytes(const struct __sk_buff *skb, __u32 offset, void *to, __u32 size);
static long bpf_redirect(__u32 interface, __u64 flags);

#endif
