/*
 * Sees TCP and SCTP set-ups between clients and the members of pools, on the clients' side of a gateway (tc, ingress and
 * egress of the interface), whether it routes or bridges.
 *
 * A SYN or INIT that comes in passes; it is noted in a table, and copied to ppu-guard, which repeats it. The client's own
 * repetition is swallowed. The answer that goes out to the client ends the entry. When in doubt, let it pass: without
 * room, without ppu-guard (the lease), in a form that is not plain.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "../layout.h"

#define PASS TC_ACT_UNSPEC /* further filters see it */
#define MAC_BYTES 14
#define TAG_BYTES 4
#define IPV4_BYTES 20
#define IPV6_BYTES 40
#define TCP_BYTES 20
#define SCTP_BYTES 12
#define INIT_BYTES 20
#define FRAGMENTED 0x3fff

#define TCP_RST 0x04
#define TCP_SYN 0x02
#define TCP_ACK 0x10
#define TCP_FIN 0x01
#define SCTP_INIT 1
#define SCTP_INIT_ACK 2
#define SCTP_ABORT 6

#define NS_PER_MS 1000000ull
#define NS_PER_US 1000ull
#define LONGEST_ROUND_TRIP_US 400000 /* later answers may be those to a repetition (Karn) */

/* The compiler knows no bounds of it from here on, so that it checks them again where the verifier needs to see it. */
#define FORGET_BOUNDS(number) asm volatile("" : "+r"(number))

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MOST_MEMBERS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct destination);
	__type(value, __u32); /* its index in `members` */
} destinations SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_MEMBERS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct member);
} members SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* ppu-guard says how many */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct bucket);
} buckets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} notices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTER_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

struct packet {
	__u64 source[2], target[2];
	__be16 source_port, target_port;
	__u8 version, protocol;
	__u32 begin; /* of the transport's header, in the frame */
	__u32 end; /* of the IP packet */
};

static __always_inline void count(__u32 counter)
{
	__u64 *value = bpf_map_lookup_elem(&counters, &counter);
	if (value)
		(*value)++;
}

/* Read addresses and ports of a whole TCP or SCTP packet without IP options; whether it is one. */
static __always_inline int read_packet(struct __sk_buff *skb, struct packet *packet)
{
	__be16 type;
	__u32 at = MAC_BYTES, word;
	if (bpf_skb_load_bytes(skb, 12, &type, sizeof(type)))
		return 0;
	if (type == bpf_htons(ETH_P_8021Q)) {
		if (bpf_skb_load_bytes(skb, 16, &type, sizeof(type)))
			return 0;
		at += TAG_BYTES;
	}
	if (type == bpf_htons(ETH_P_IP)) {
		__u8 head[IPV4_BYTES];
		if (bpf_skb_load_bytes(skb, at, head, sizeof(head)) || head[0] != 0x45)
			return 0;
		if (((head[6] << 8 | head[7]) & FRAGMENTED) != 0)
			return 0;
		packet->version = 4;
		packet->protocol = head[9];
		__builtin_memcpy(&word, head + 12, 4);
		packet->source[0] = word;
		__builtin_memcpy(&word, head + 16, 4);
		packet->target[0] = word;
		packet->source[1] = packet->target[1] = 0;
		packet->end = at + (head[2] << 8 | head[3]);
		packet->begin = at + IPV4_BYTES;
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		__u64 head[IPV6_BYTES / 8];
		if (bpf_skb_load_bytes(skb, at, head, sizeof(head)) || *(__u8 *)head >> 4 != 6)
			return 0;
		packet->version = 6;
		packet->protocol = ((__u8 *)head)[6];
		packet->source[0] = head[1];
		packet->source[1] = head[2];
		packet->target[0] = head[3];
		packet->target[1] = head[4];
		packet->end = at + IPV6_BYTES + (((__u8 *)head)[4] << 8 | ((__u8 *)head)[5]);
		packet->begin = at + IPV6_BYTES;
	} else {
		return 0;
	}
	if (packet->protocol != PROTOCOL_TCP && packet->protocol != PROTOCOL_SCTP)
		return 0;
	__be16 ports[2];
	if (packet->end > skb->len || bpf_skb_load_bytes(skb, packet->begin, ports, sizeof(ports)))
		return 0;
	packet->source_port = ports[0];
	packet->target_port = ports[1];
	return 1;
}

/* The first bytes of the transport's header: of TCP up to its flags, of SCTP up to the first chunk's initiate tag. */
#define HEAD_BYTES 20

static __always_inline struct member *member_at(const __u64 address[2], __be16 port, const struct packet *packet,
						 __u32 *index)
{
	struct destination destination = {
		.address = {address[0], address[1]}, .port = port, .version = packet->version, .protocol = packet->protocol};
	__u32 *found = bpf_map_lookup_elem(&destinations, &destination);
	if (!found)
		return 0;
	*index = *found;
	return bpf_map_lookup_elem(&members, index);
}

/* Functions of their own: the verifier looks at each once, and not again for every way that a packet may take. */

__noinline int find_in(const struct bucket *bucket, const struct key *key, __u32 tag)
{
	return bucket && key ? bucket_find(bucket, tag, key) : WAYS;
}

__noinline int room_in(const struct bucket *bucket)
{
	return bucket ? bucket_room(bucket) : 0;
}

__noinline int take_in(struct bucket *bucket)
{
	return bucket ? bucket_take(bucket) : WAYS;
}

/* The two buckets of a key, and its entry in one of them. */
struct candidates {
	struct bucket *one, *other;
	__u64 hash;
	__u32 tag, first, second;
};

static __always_inline int find_candidates(const struct settings *now, const struct key *key, struct candidates *candidates)
{
	candidates->hash = key_hash(key, now->secret);
	candidates->tag = tag_of(candidates->hash);
	candidates->first = first_bucket(candidates->hash, now->buckets);
	candidates->second = second_bucket(candidates->hash, now->buckets);
	candidates->one = bpf_map_lookup_elem(&buckets, &candidates->first);
	candidates->other = bpf_map_lookup_elem(&buckets, &candidates->second);
	return candidates->one && candidates->other;
}

static __always_inline struct entry *find_entry(const struct candidates *candidates, const struct key *key)
{
	struct bucket *bucket = candidates->one;
	__u32 way = find_in(bucket, key, candidates->tag);
	if (way >= WAYS) {
		bucket = candidates->other;
		way = find_in(bucket, key, candidates->tag);
	}
	return way >= WAYS ? 0 : &bucket->entries[way];
}

static __always_inline void notify(struct __sk_buff *skb, struct notice *notice, const struct settings *now)
{
	notice->interface = skb->ifindex;
	notice->is_tagged = skb->vlan_present != 0;
	notice->vlan = skb->vlan_tci;
	/* ppu-guard looks every few milliseconds; to wake it for each would cost more than all else. */
	__u64 waiting = bpf_ringbuf_query(&notices, BPF_RB_AVAIL_DATA);
	bpf_ringbuf_submit(notice, waiting > now->wake_bytes ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

/* Copy the first `size` bytes of a packet, at most `room`: each bound by itself, so that every verifier sees it. */
static __always_inline long copy_frame(struct __sk_buff *skb, void *frame, __u32 size, __u32 room)
{
	FORGET_BOUNDS(size);
	if (size > room)
		return -1;
	FORGET_BOUNDS(size);
	if (size < MAC_BYTES + IPV4_BYTES + SCTP_BYTES)
		return -1;
	FORGET_BOUNDS(size);
	return bpf_skb_load_bytes(skb, 0, frame, size);
}

/* A notice in the ring with a packet's bytes; 0 without room. */
#define NOTICE(type)                                                                                                   \
	static __always_inline struct notice *new_##type(struct __sk_buff *skb, __u32 size)                            \
	{                                                                                                              \
		struct type *notice = bpf_ringbuf_reserve(&notices, sizeof(*notice), 0);                               \
		if (!notice)                                                                                           \
			return 0;                                                                                      \
		if (copy_frame(skb, notice->frame, size, sizeof(notice->frame))) {                                     \
			bpf_ringbuf_discard(notice, BPF_RB_NO_WAKEUP);                                                 \
			return 0;                                                                                      \
		}                                                                                                      \
		return &notice->head;                                                                                  \
	}
NOTICE(short_notice)
NOTICE(tcp_notice)
NOTICE(sctp_notice)

/* Find room for a key, fill it and tell ppu-guard. The result is a counter. */
static __always_inline __u32 enter(struct __sk_buff *skb, const struct settings *now, const struct packet *packet,
				 const struct key *key, const struct candidates *candidates, __be32 token)
{
	struct notice *notice;
	__u32 size = packet->end;
	if (size <= sizeof(((struct short_notice *)0)->frame))
		notice = new_short_notice(skb, size);
	else if (size <= MOST_TCP_FRAME)
		notice = new_tcp_notice(skb, size);
	else
		notice = new_sctp_notice(skb, size);
	if (!notice)
		return COUNT_BEHIND;
	int is_first = room_in(candidates->one) >= room_in(candidates->other);
	struct bucket *bucket = is_first ? candidates->one : candidates->other;
	__u32 way = take_in(bucket);
	FORGET_BOUNDS(way);
	if (way >= WAYS) {
		bpf_ringbuf_discard(notice, BPF_RB_NO_WAKEUP);
		return COUNT_FULL;
	}
	__u32 began_ms = (__u32)(bpf_ktime_get_ns() / NS_PER_MS);
	entry_fill(&bucket->entries[way], candidates->tag, key, token, began_ms);
	notice->slot = (is_first ? candidates->first : candidates->second) * WAYS + way;
	notice->token = token;
	notice->began_ms = began_ms;
	notice->member = key->member;
	notice->size = size;
	notify(skb, notice, now);
	return COUNT_GUARDED;
}

/* Whether a client's packet begins a set-up, in a form that can be repeated: 1; 0: not; -1: it begins one otherwise. */
static __always_inline int begins(const struct packet *packet, const __u8 head[HEAD_BYTES], __be32 *token)
{
	__u32 size = packet->end - packet->begin;
	if (packet->protocol == PROTOCOL_TCP) {
		if ((head[13] & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) != TCP_SYN)
			return 0;
		__builtin_memcpy(token, head + 4, 4);
		return (head[12] >> 4) * 4u == size ? 1 : -1; /* with data (TCP Fast Open) it is not ours */
	}
	if (head[12] != SCTP_INIT)
		return 0;
	__builtin_memcpy(token, head + 16, 4);
	__u32 chunk = head[14] << 8 | head[15];
	return *token && chunk >= INIT_BYTES && ((chunk + 3) & ~3u) == size - SCTP_BYTES &&
			       packet->end <= MOST_FRAME
		       ? 1
		       : -1;
}

SEC("tc")
int guard_in(struct __sk_buff *skb)
{
	struct packet packet;
	__u8 head[HEAD_BYTES];
	__u32 zero = 0, index;
	__be32 token = 0;

	if (skb->mark == REPEAT_MARK) { /* ours, and no other's business from here on */
		skb->mark = 0;
		return PASS;
	}
	if (!read_packet(skb, &packet) || bpf_skb_load_bytes(skb, packet.begin, head, sizeof(head)))
		return PASS;
	int fits = begins(&packet, head, &token);
	if (!fits)
		return PASS;
	struct member *member = member_at(packet.target, packet.target_port, &packet, &index);
	struct settings *now = bpf_map_lookup_elem(&settings, &zero);
	if (!member || !member->is_guarded || !now)
		return PASS;
	if (fits < 0 || packet.begin > MAC_BYTES + IPV6_BYTES) {
		count(COUNT_UNFIT);
		return PASS;
	}
	if (now->alive_until_ns < bpf_ktime_get_ns()) {
		count(COUNT_UNATTENDED);
		return PASS;
	}
	struct key key = {.client = {packet.source[0], packet.source[1]}, .member = index, .port = packet.source_port};
	struct candidates candidates;
	if (!find_candidates(now, &key, &candidates))
		return PASS;
	struct entry *known = find_entry(&candidates, &key);
	if (known) {
		if (known->token == token) {
			count(COUNT_SWALLOWED);
			return TC_ACT_SHOT;
		}
		if (entry_end(known, candidates.tag))
			count(COUNT_REPLACED);
	}
	count(enter(skb, now, &packet, &key, &candidates, token));
	return PASS;
}

/* Whether a packet answers a set-up that sent `token`: a counter, or -1 when it answers none at all. */
static __always_inline int answers(const struct packet *packet, const __u8 head[HEAD_BYTES])
{
	if (packet->protocol == PROTOCOL_TCP) {
		__u8 flags = head[13] & (TCP_SYN | TCP_ACK | TCP_RST);
		if (flags == (TCP_SYN | TCP_ACK))
			return COUNT_ANSWERED;
		return flags == (TCP_RST | TCP_ACK) ? COUNT_REFUSED : -1;
	}
	if (head[12] == SCTP_INIT_ACK)
		return COUNT_ANSWERED;
	return head[12] == SCTP_ABORT ? COUNT_REFUSED : -1;
}

static __always_inline int is_token(const struct packet *packet, const __u8 head[HEAD_BYTES], __be32 token)
{
	__be32 told;
	if (packet->protocol == PROTOCOL_TCP) {
		__builtin_memcpy(&told, head + 8, 4);
		return bpf_ntohl(told) == bpf_ntohl(token) + 1;
	}
	__builtin_memcpy(&told, head + 4, 4);
	return told == token;
}

SEC("tc")
int guard_out(struct __sk_buff *skb)
{
	struct packet packet;
	__u8 head[HEAD_BYTES] = {};
	__u32 zero = 0, index;

	if (skb->mark == REPEAT_MARK)
		return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
	if (!read_packet(skb, &packet))
		return PASS;
	__u32 size = packet.protocol == PROTOCOL_TCP ? HEAD_BYTES : 16; /* an ABORT may have 16 bytes */
	if (bpf_skb_load_bytes(skb, packet.begin, head, size))
		return PASS;
	int answer = answers(&packet, head);
	if (answer < 0)
		return PASS;
	struct member *member = member_at(packet.source, packet.source_port, &packet, &index);
	struct settings *now = bpf_map_lookup_elem(&settings, &zero);
	if (!member || !now)
		return PASS;
	struct key key = {.client = {packet.target[0], packet.target[1]}, .member = index, .port = packet.target_port};
	struct candidates candidates;
	if (!find_candidates(now, &key, &candidates))
		return PASS;
	struct entry *known = find_entry(&candidates, &key);
	if (!known)
		return PASS;
	if (!is_token(&packet, head, known->token)) {
		count(COUNT_FORGED);
		return PASS;
	}
	__u32 took_us = ((__u32)(bpf_ktime_get_ns() / NS_PER_MS) - known->began_ms) * 1000 + 500;
	if (!entry_end(known, candidates.tag))
		return PASS;
	count(answer);
	if (answer == COUNT_ANSWERED && took_us < LONGEST_ROUND_TRIP_US)
		member->round_trip_us =
			member->round_trip_us ? (member->round_trip_us * 7 + took_us) / 8 : took_us;
	return PASS;
}

char program_license[] SEC("license") = "Apache-2.0";
