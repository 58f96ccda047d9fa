/*
 * The shared memory of guard.bpf.c and ppu-guard: the maps' keys and values, and the table of set-ups that wait for an answer.
 *
 * Only these two use it, on one machine and of one build: it is no interface to anything else.
 */
#ifndef GUARD_LAYOUT_H
#define GUARD_LAYOUT_H

#include <linux/types.h>

#define INLINE static inline __attribute__((always_inline, unused))

/* SO_MARK of a repeated SYN ("ppug"): sent out of the client's interface, it comes in there again. */
#define REPEAT_MARK 0x70707567u
#define WAYS 8
#define FREE 0u
#define BUSY 1u /* taken by a processor that is about to fill it */
#define MOST_MEMBERS 16384
#define MOST_TCP_FRAME (14 + 40 + 60) /* Ethernet, IPv6, TCP with all of its options */
#define MOST_FRAME 512 /* of an SCTP INIT */

#define PROTOCOL_TCP 6
#define PROTOCOL_SCTP 132

/* The place of a member; an IPv4 address stands in the first four bytes. */
struct destination {
	__u64 address[2];
	__be16 port;
	__u8 version; /* 4 or 6 */
	__u8 protocol;
	__u32 unused;
};

struct member {
	__u32 is_guarded; /* else it is about to go: what waits is still ended by its answers */
	__u32 round_trip_us; /* as the set-ups found it, smoothed; 0: not known */
};

/* One set-up that waits for an answer. */
struct entry {
	__u32 tag; /* FREE, BUSY, or of the key's hash */
	__be32 token; /* TCP: initial sequence number; SCTP: initiate tag */
	__u32 began_ms; /* CLOCK_MONOTONIC */
	__u16 member;
	__be16 port;
	__u64 client[2];
};

struct bucket {
	struct entry entries[WAYS];
};

/* The key that tells set-ups apart. */
struct key {
	__u64 client[2];
	__u16 member;
	__be16 port;
	__u32 unused; /* 0: the verifier wants every byte to be written */
};

struct settings {
	__u64 alive_until_ns; /* CLOCK_MONOTONIC: ppu-guard repeats and answers until then */
	__u64 secret[2];
	__u32 buckets;
	__u32 wake_bytes; /* so much in the ring wakes ppu-guard before its time */
};

/* A SYN or INIT that was let through, and is in the table now. */
struct notice {
	__u32 slot;
	__be32 token;
	__u32 began_ms;
	__u32 interface;
	__u16 member;
	__u16 vlan; /* its tag, where `is_tagged` */
	__u16 is_tagged;
	__u16 size; /* of the frame, without a tag */
};

/* As long as its frame, more or less: the more of them the ring holds, the longer ppu-guard may be held up. */
struct short_notice {
	struct notice head;
	__u8 frame[80]; /* a SYN over IPv4 as systems send it has 74 */
};

struct tcp_notice {
	struct notice head;
	__u8 frame[MOST_TCP_FRAME];
};

struct sctp_notice {
	struct notice head;
	__u8 frame[MOST_FRAME];
};

#define COUNTERS(counter)                                                                                              \
	counter(GUARDED, "guarded")	/* set-ups that got into the table */                                          \
	counter(ANSWERED, "answered")	/* by SYN-ACK or INIT ACK */                                                   \
	counter(REFUSED, "refused")	/* by RST or ABORT, of server or network */                                    \
	counter(REPLACED, "replaced")	/* the client began anew */                                                    \
	counter(SWALLOWED, "swallowed") /* repeated by the client */                                                   \
	counter(FULL, "full")		/* passed: no room in the table */                                             \
	counter(BEHIND, "behind")	/* passed: no room in the ring, which ppu-guard had no time to read */         \
	counter(UNFIT, "unfit")		/* passed: a form that is not repeated */                                      \
	counter(UNATTENDED, "unattended") /* passed: nobody renewed the lease */                                       \
	counter(FORGED, "forged")	/* an answer that does not fit what was sent */

enum counter {
#define AS_NAME(name, text) COUNT_##name,
	COUNTERS(AS_NAME)
#undef AS_NAME
		COUNTER_COUNT
};

#define ROTATE(word, bits) ((word) << (bits) | (word) >> (64 - (bits)))
#define SIP_ROUND                                                                                                      \
	do {                                                                                                           \
		v0 += v1, v1 = ROTATE(v1, 13) ^ v0, v0 = ROTATE(v0, 32);                                               \
		v2 += v3, v3 = ROTATE(v3, 16) ^ v2;                                                                    \
		v0 += v3, v3 = ROTATE(v3, 21) ^ v0;                                                                    \
		v2 += v1, v1 = ROTATE(v1, 17) ^ v2, v2 = ROTATE(v2, 32);                                               \
	} while (0)

/* SipHash-1-3 of a key: clients choose addresses and ports, and must not choose buckets. */
INLINE __u64 key_hash(const struct key *key, const __u64 secret[2])
{
	__u64 words[3] = {key->client[0], key->client[1], (__u64)key->member << 16 | key->port};
	__u64 v0 = secret[0] ^ 0x736f6d6570736575ull, v1 = secret[1] ^ 0x646f72616e646f6dull;
	__u64 v2 = secret[0] ^ 0x6c7967656e657261ull, v3 = secret[1] ^ 0x7465646279746573ull;
	for (int i = 0; i < 3; i++) {
		v3 ^= words[i];
		SIP_ROUND;
		v0 ^= words[i];
	}
	v2 ^= 0xff;
	SIP_ROUND;
	SIP_ROUND;
	SIP_ROUND;
	return v0 ^ v1 ^ v2 ^ v3;
}

INLINE __u32 tag_of(__u64 hash)
{
	return (__u32)hash | 2; /* never FREE, never BUSY */
}

/* A key has two buckets; it goes into the emptier one. */
INLINE __u32 first_bucket(__u64 hash, __u32 buckets)
{
	return (__u32)(((hash >> 32) * buckets) >> 32);
}

INLINE __u32 second_bucket(__u64 hash, __u32 buckets)
{
	return (__u32)((((hash * 0x9e3779b97f4a7c15ull) >> 32) * buckets) >> 32);
}

INLINE int is_of(const struct entry *entry, __u32 tag, const struct key *key)
{
	return entry->tag == tag && entry->port == key->port && entry->member == key->member &&
	       entry->client[0] == key->client[0] && entry->client[1] == key->client[1];
}

/* The number of a key's entry in this bucket, or WAYS. */
INLINE int bucket_find(const struct bucket *bucket, __u32 tag, const struct key *key)
{
	for (int i = 0; i < WAYS; i++)
		if (is_of(&bucket->entries[i], tag, key))
			return i;
	return WAYS;
}

INLINE int bucket_room(const struct bucket *bucket)
{
	int room = 0;
	for (int i = 0; i < WAYS; i++)
		room += bucket->entries[i].tag == FREE;
	return room;
}

/* Take a free entry, which is BUSY then: its number, or WAYS. */
INLINE int bucket_take(struct bucket *bucket)
{
	for (int i = 0; i < WAYS; i++)
		if (bucket->entries[i].tag == FREE &&
		    __sync_val_compare_and_swap(&bucket->entries[i].tag, FREE, BUSY) == FREE)
			return i;
	return WAYS;
}

INLINE void entry_fill(struct entry *entry, __u32 tag, const struct key *key, __be32 token, __u32 began_ms)
{
	entry->token = token;
	entry->began_ms = began_ms;
	entry->member = key->member;
	entry->port = key->port;
	entry->client[0] = key->client[0];
	entry->client[1] = key->client[1];
	__sync_lock_test_and_set(&entry->tag, tag); /* from here on it is seen */
}

/* End a set-up; whether it was this caller who did. */
INLINE int entry_end(struct entry *entry, __u32 tag)
{
	return __sync_val_compare_and_swap(&entry->tag, tag, FREE) == tag;
}

#endif
