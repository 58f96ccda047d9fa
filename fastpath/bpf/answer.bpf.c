/*
 * Answers DNS questions from ready answers where the packet arrives; passes everything else on, untouched.
 *
 * One source for tc (ingress) and XDP. A question that is not plainly one of those answered here is for PowerDNS: when
 * in doubt, pass on. SERVFAIL is never made here. With a limit, questions above a rate get TC, or no answer.
 *
 * Three mechanisms keep answers right:
 *  - the lease: without a backend that renews it nothing is answered, whoever else lives or not;
 *  - generations: an entry has two halves, and the daemon makes all new halves visible by one store;
 *  - slots of entries and answers are used again only when every program that ran then has ended (membarrier(2)).
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "../layout.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "names are folded in words of a little-endian machine"
#endif

#define IPV4_HEAD (14 + 20 + 8) /* Ethernet, IPv4 without options, UDP */
#define IPV6_HEAD (14 + 40 + 8)
#define DNS_HEADER 12
#define QUESTION_REST 4 /* type and class */
#define OPT_BYTES 11	/* without options (RFC 6891) */
#define SHORTEST (DNS_HEADER + 1 + QUESTION_REST)
#define LONGEST 288 /* of a question; longer ones are passed on, or limited by what they begin with */
#define MOST_LABELS 128
#define WHOLE_WORDS ((MOST_NAME_BYTES + 7) / 8)
#define LOOPBACK 1   /* the interface lo, in every network namespace */
#define HOST_LIFE 64 /* TTL and hop limit of an answer */

#define FLAG_RD 0x0100
#define KNOWN_FLAGS 0x0130 /* RD, AD, CD: all that a question of opcode QUERY may have here */
#define FLAGS_OF_NO_QUESTION 0xf800 /* QR and opcode: neither is set in a question */
#define FLAGS_OF_ANSWER 0x8400 /* QR, AA: what PowerDNS sets; RD is copied */
#define FLAGS_OF_LIMITED 0x8200 /* QR, TC */
#define BURST_NS 1000000000ull /* a prefix may ask at once what it may ask in this time */
#define CLASS_IN 1
#define TYPE_OPT 41
#define CLIENT_SUBNET 8	     /* the option of RFC 7871, from here on: */
#define SUBNET_HEAD 8	     /* code, size, family, source prefix, scope prefix */
#define SUBNET_FIXED 4	     /* of these, the bytes that `size` counts */
#define MOST_SUBNET_BYTES 24 /* with an address */
#define DO 0x8000

/* The compiler knows nothing of its value from here on: the verifier looks at what follows once for all values. */
#define FORGET(number) asm volatile("" : "+r"(number))

/*
 * Bring a number into these bounds, in the very register that is used then. A comparison in C would not do: the compiler may
 * compare one copy and use another, and the verifier of Linux 6.1 does not know that both are the same.
 */
#define BOUND(number, least, most)                                                                                      \
	asm volatile("if %0 >= %1 goto +1\n\t%0 = %1\n\tif %0 <= %2 goto +1\n\t%0 = %2" : "+r"(number) : "i"(least), "i"(most))

#define ONES 0x0101010101010101ull

/* Whether this kernel has IPsec, and so the helper that tells which packets were decrypted; the daemon finds out. */
const volatile __u32 has_ipsec = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct leases);
} leases SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* the daemon says how many */
	__type(key, struct question);
	__type(value, __u32);
} names SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct entry);
} entries SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct answer);
} answers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, MOST_BLOCKS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct block);
	__type(value, struct asker_class);
} blocks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, struct destination);
	__type(value, __u8);
} destinations SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MOST_STATIONS);
	__type(key, struct station);
	__type(value, __u8);
} stations SEC(".maps");

/* Interfaces without a wire: only there does the kernel leave a checksum to hardware that never comes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MOST_INTERFACES);
	__type(key, __u32);
	__type(value, __u8);
} unwired SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REASON_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} decisions SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MOST_ZONES);
	__type(key, struct zone);
	__type(value, __u32);
} zones SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MOST_SOURCES);
	__type(key, struct source);
	__type(value, struct rate);
} sources SEC(".maps");

/* The memory in which a question is taken apart. The name begins at a multiple of 8, addresses at multiples of 4. */
struct scratch {
	__u8 before[4];
	__u8 head[64]; /* what comes before the DNS message: the last bytes of it */
	__u8 dns[LONGEST + 4];
	struct question question;
	__u8 opt[OPT_BYTES + MOST_SUBNET_BYTES + 1];
	/* For the limit alone: where each label begins; the whole name with zeros behind it; what it is looked up by. */
	__u8 labels[MOST_LABELS];
	__u8 whole[8 * WHOLE_WORDS + NAME_BYTES + 8] __attribute__((aligned(8)));
	struct zone zone;
};
#define HEAD(bytes) (sizeof(((struct scratch *)0)->head) - (bytes)) /* where a head of this number of bytes begins */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

/* A packet in tc or in XDP: which of them is known when the program is compiled. */
struct packet {
	void *context;
	__u32 size;
	__u32 interface;
	int is_xdp;
	__u64 head;    /* bytes before the DNS message */
	__u64 dns;     /* bytes of the DNS message */
	__u64 behind;  /* where the question ends in it */
	__u32 labels;  /* of the name */
	__u32 options; /* whether an OPT record came along */
	__u32 dnssec;  /* DO */
	__u32 subnet;  /* bytes of a client subnet in it, 0: there is none */
	struct block asker; /* whom the answer is for: the source, or that subnet */
	__u8 scope;	    /* of the answer */
	__u32 addresses; /* sum of both addresses and the protocol, for checksums */
	int is_partial; /* the kernel left the checksum to the hardware: it holds the pseudo header's sum alone */
	int is_turned;	/* source and destination in the copy of its head are the answer's */
};

static __always_inline long load(struct packet *p, __u32 offset, void *to, __u32 size)
{
	return p->is_xdp ? bpf_xdp_load_bytes(p->context, offset, to, size)
			 : bpf_skb_load_bytes(p->context, offset, to, size);
}

static __always_inline long store(struct packet *p, __u32 offset, void *from, __u32 size)
{
	return p->is_xdp ? bpf_xdp_store_bytes(p->context, offset, from, size)
			 : bpf_skb_store_bytes(p->context, offset, from, size, 0);
}

static __always_inline long resize(struct packet *p, __u32 size)
{
	return p->is_xdp ? bpf_xdp_adjust_tail(p->context, (int)size - (int)p->size)
			 : bpf_skb_change_tail(p->context, size, 0);
}

static __always_inline __u16 two_bytes(const __u8 *at) { return (__u16)at[0] << 8 | at[1]; }

static __always_inline void put_two_bytes(__u8 *at, __u16 value)
{
	at[0] = value >> 8;
	at[1] = value;
}

/* The sum of 16 bits in the packet's own order; never 0 but of zeros. */
static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static __always_inline __u16 swapped(__u16 sum) { return sum << 8 | sum >> 8; }

static __always_inline __u64 lower(__u64 word)
{
	__u64 low = word & (0x7f * ONES);
	__u64 is_upper = (low + (0x80 - 'A') * ONES) ^ (low + (0x7f - 'Z') * ONES);
	return word | ((is_upper & ~word & (0x80 * ONES)) >> 2);
}

static __always_inline void count(enum reason reason)
{
	__u32 key = reason;
	__u64 *counter = bpf_map_lookup_elem(&counters, &key);
	if (counter)
		*counter += 1;
}

/* Whether a frame that XDP sees is for this host, and not for another one whose frames come here, too. */
static __always_inline int is_for_us(struct packet *p, const __u8 *mac)
{
	struct station station = {.interface = p->interface};
	__builtin_memcpy(station.mac, mac, sizeof(station.mac));
	return bpf_map_lookup_elem(&stations, &station) != 0;
}

/* Whether answers may go to an IPv4 source: not to 0.0.0.0/8, multicast, broadcast, nor, by a network, to this host itself. */
static __always_inline int may_ask_ipv4(const struct packet *p, const __u8 *source, const __u8 *own)
{
	if (source[0] == 0 || source[0] >= 224)
		return 0;
	if (p->interface == LOOPBACK)
		return source[0] != 127 || own[0] == 127;
	return source[0] != 127 && *(const __u32 *)source != *(const __u32 *)own;
}

/* The same of IPv6: multicast, ::, ::1 and the rest of ::/8 with mapped IPv4 addresses, which no network carries. */
static __always_inline int may_ask_ipv6(const struct packet *p, const __u8 *source, const __u8 *own)
{
	const __u32 *words = (const __u32 *)source, *others = (const __u32 *)own;
	if (source[0] == 0xff)
		return 0;
	if (p->interface == LOOPBACK)
		return (words[0] | words[1] | words[2] | words[3]) != 0;
	__u32 differs = (words[0] ^ others[0]) | (words[1] ^ others[1]) | (words[2] ^ others[2]) | (words[3] ^ others[3]);
	return source[0] != 0 && differs;
}

/* Ethernet, IP and UDP of a question at one of our addresses. -1: nothing of ours; else a reason to pass on, or ANSWERED. */
static __always_inline int read_head(struct packet *p, struct scratch *s)
{
	__u8 *ethernet = s->head + HEAD(IPV4_HEAD);
	if (p->size < IPV4_HEAD || load(p, 0, ethernet, IPV4_HEAD))
		return -1;
	struct destination to = {};
	__u16 kind = two_bytes(ethernet + 12);
	if (kind == ETH_P_IP) {
		__u8 *ip = s->head + HEAD(20 + 8);
		if (ip[9] != 17)
			return -1;
		__builtin_memcpy(to.address, ip + 16, 4);
		__builtin_memcpy(&to.port, ip + 22, 2);
		to.version = 4;
		if (!bpf_map_lookup_elem(&destinations, &to))
			return -1;
		__u16 all = two_bytes(ip + 2), udp = two_bytes(ip + 24);
		/* Version and length of the header; no fragment, no reserved bit; the lengths fit together. */
		if (ip[0] != 0x45 || (two_bytes(ip + 6) & 0xbfff) || all != udp + 20 || p->size < 14u + all)
			return PACKET;
		if (fold((__u32)bpf_csum_diff(0, 0, (void *)ip, 20, 0)) != 0xffff)
			return CHECKSUM;
		if (!may_ask_ipv4(p, ip + 12, ip + 16))
			return PACKET;
		p->head = IPV4_HEAD;
		p->dns = (__u32)udp - 8;
		p->addresses = (__u32)bpf_csum_diff(0, 0, (void *)(ip + 12), 8, 0);
	} else if (kind == ETH_P_IPV6) {
		if (p->size < IPV6_HEAD || load(p, 0, s->head + HEAD(IPV6_HEAD), IPV6_HEAD))
			return -1;
		__u8 *ip = s->head + HEAD(40 + 8);
		if (ip[6] != 17)
			return -1;
		__builtin_memcpy(to.address, ip + 24, 16);
		__builtin_memcpy(&to.port, ip + 42, 2);
		to.version = 6;
		if (!bpf_map_lookup_elem(&destinations, &to))
			return -1;
		__u16 payload = two_bytes(ip + 4), udp = two_bytes(ip + 44);
		if ((ip[0] & 0xf0) != 0x60 || payload != udp || p->size < 54u + payload || !may_ask_ipv6(p, ip + 8, ip + 24))
			return PACKET;
		p->head = IPV6_HEAD;
		p->dns = (__u32)udp - 8;
		p->addresses = (__u32)bpf_csum_diff(0, 0, (void *)(ip + 8), 32, 0);
	} else {
		return -1;
	}
	__u8 *udp = s->head + HEAD(8);
	__u8 *mac = s->head + (p->head == IPV4_HEAD ? HEAD(IPV4_HEAD) : HEAD(IPV6_HEAD));
	if ((mac[0] | mac[6]) & 1)
		return PACKET; /* to many hosts, or its answer would be */
	if (p->is_xdp && !is_for_us(p, mac))
		return PACKET;
	if (p->dns < SHORTEST || p->dns >= 65536 || (udp[0] | udp[1]) == 0)
		return PACKET;
	return ANSWERED;
}

/* The DNS message itself, and whether its checksum is right; of a longer one the beginning, without looking at that. */
static __always_inline int read_checked(struct packet *p, struct scratch *s)
{
	__u64 size = p->dns;
	BOUND(size, SHORTEST, LONGEST);
	if (load(p, p->head, s->dns, size))
		return PACKET;
	s->dns[size] = 0;
	s->dns[size + 1] = 0;
	s->dns[size + 2] = 0;
	__u16 *udp = (__u16 *)(s->head + HEAD(8));
	__u16 check = udp[3];
	p->addresses += bpf_htons(17);
	__u16 pseudo = fold((__u64)p->addresses + udp[2]);
	p->is_partial = check == pseudo && bpf_map_lookup_elem(&unwired, &p->interface);
	if (check == 0)
		return p->head == IPV4_HEAD ? ANSWERED : PACKET; /* IPv4 allows to leave it out */
	if (p->dns > LONGEST)
		return ANSWERED;
	__u32 sum = bpf_csum_diff(0, 0, (void *)s->dns, (size + 3) & ~3ull, 0);
	int is_whole = fold((__u64)sum + pseudo + udp[0] + udp[1] + udp[2] + check) == 0xffff;
	/* Both at once happens to one packet of 65,536: which it is can't be known, so PowerDNS may have it. */
	return is_whole != p->is_partial ? ANSWERED : CHECKSUM;
}

/* A walk over the labels of a name. */
struct walk {
	__u8 *dns;
	__u32 at;
	__u32 size;
	__u32 labels;
	__u8 *starts;
	enum { ON_THE_WAY, AT_END, NO_NAME } end;
};

static long next_label(__u32 turn, void *context)
{
	struct walk *walk = context;
	__u32 at = walk->at;
	if (at >= DNS_HEADER + MOST_NAME_BYTES)
		return 1;
	__u8 label = at < walk->size ? walk->dns[at] : 0xff;
	if (label > 63 || label == 0) {
		walk->end = label ? NO_NAME : AT_END;
		return 1;
	}
	walk->starts[turn % MOST_LABELS] = at - DNS_HEADER;
	walk->labels = turn + 1;
	walk->at = at + label + 1;
	return 0;
}

/* The question: its name in lower case, its type, and where it ends. */
static __always_inline int read_question(struct packet *p, struct scratch *s)
{
	__u8 *dns = s->dns;
	__u32 size = p->dns > LONGEST ? LONGEST : p->dns;
	if ((two_bytes(dns + 2) & FLAGS_OF_NO_QUESTION) || two_bytes(dns + 4) != 1)
		return OTHER_QUESTION;
	struct walk walk = {.dns = dns, .at = DNS_HEADER, .size = size, .starts = s->labels};
	bpf_loop(MOST_LABELS, next_label, &walk, 0);
	__u64 at = walk.at;
	if (walk.end != AT_END)
		return walk.end == NO_NAME ? OTHER_QUESTION : LONG_NAME;
	if (at < DNS_HEADER || at >= DNS_HEADER + MOST_NAME_BYTES)
		return LONG_NAME;
	if (at + 1 + QUESTION_REST > size)
		return OTHER_QUESTION;
	p->behind = at + 1 + QUESTION_REST;
	p->labels = walk.labels;
	if ((two_bytes(dns + 2) & ~KNOWN_FLAGS) || two_bytes(dns + 6) || two_bytes(dns + 8) || dns[10] || dns[11] > 1 ||
	    p->dns > LONGEST)
		return OTHER_QUESTION;
	if (at >= DNS_HEADER + NAME_BYTES)
		return LONG_NAME;
	struct question *question = &s->question;
	question->type = two_bytes(dns + at + 1);
	question->size = at + 1 - DNS_HEADER;
	question->asker_class = question->unused = 0;
	__builtin_memset(question->name, 0, sizeof(question->name));
	__u64 bytes = at + 1 - DNS_HEADER;
	BOUND(bytes, 1, NAME_BYTES);
	if (load(p, p->head + DNS_HEADER, question->name, bytes))
		return LONG_NAME;
#pragma unroll
	for (int i = 0; i < NAME_WORDS; i++)
		question->name[i] = lower(question->name[i]); /* the length of a label is below 'A' */
	return two_bytes(dns + at + 3) == CLASS_IN ? ANSWERED : OTHER_QUESTION;
}

/* The first bits of a part of an address, which is in the host's byte order. */
static __always_inline __u64 first_bits(__u64 part, __u64 bits)
{
	return bits == 0 ? 0 : bits > 63 ? part : part >> (64 - bits) << (64 - bits);
}

/* A client subnet as the only option, from its code on: it is the asker then, where his class matters. */
static __always_inline int read_subnet(struct packet *p, const __u8 *option, __u32 size)
{
	__u64 bits = option[6], most = option[5] == 1 ? 32 : 128, high, low;
	__u64 whole = (bits + 7) & ~7ull; /* bits of the bytes that are there */
	if (size < SUBNET_HEAD || two_bytes(option) != CLIENT_SUBNET || two_bytes(option + 2) != size - SUBNET_FIXED)
		return OPTIONS;
	/* The scope of a question is 0; for a prefix of 0 bits PowerDNS answers. */
	if (option[4] || (option[5] != 1 && option[5] != 2) || option[7] || bits == 0 || bits > most || size != SUBNET_HEAD + whole / 8)
		return OPTIONS;
	__builtin_memcpy(&high, option + SUBNET_HEAD, 8);
	__builtin_memcpy(&low, option + SUBNET_HEAD + 8, 8);
	high = bpf_be64_to_cpu(high);
	low = bits > 64 ? first_bits(bpf_be64_to_cpu(low), whole - 64) : 0;
	high = first_bits(high, whole);
	if (first_bits(high, bits) != high || (bits > 64 && first_bits(low, bits - 64) != low))
		return OPTIONS; /* bits behind the prefix */
	high = bpf_cpu_to_be64(high);
	low = bpf_cpu_to_be64(low);
	p->subnet = size;
	p->asker.version = option[5] == 1 ? 4 : 6;
	p->asker.bits = CLASSES_BITS + bits;
	__builtin_memcpy(p->asker.address, &high, 8);
	__builtin_memcpy(p->asker.address + 8, &low, 8);
	return ANSWERED;
}

/* The part behind the question: nothing, or an OPT record without options, or with a client subnet. */
static __always_inline int read_options(struct packet *p, struct scratch *s, const struct settings *set)
{
	__u64 at = p->behind;
	BOUND(at, SHORTEST, DNS_HEADER + NAME_BYTES + QUESTION_REST);
	__u8 *opt = s->dns + at;
	p->options = s->dns[11];
	if (!p->options)
		return p->dns == at ? ANSWERED : OTHER_QUESTION;
	if (p->dns < at + OPT_BYTES || opt[0] || two_bytes(opt + 1) != TYPE_OPT)
		return OTHER_QUESTION;
	/* An extended code, a version, flags but DO, and other options are for PowerDNS; the size is of no matter below 512. */
	__u16 flags = two_bytes(opt + 7), size = two_bytes(opt + 9);
	if (opt[5] || opt[6] || (flags & ~DO) || p->dns != at + OPT_BYTES + size)
		return OPTIONS;
	p->dnssec = flags & DO;
	if (!size)
		return ANSWERED;
	return set->subnets ? read_subnet(p, opt + OPT_BYTES, size) : OPTIONS;
}

/* The entry of the question, if it has one. */
static __always_inline struct entry *find(const struct question *question)
{
	__u32 *slot = bpf_map_lookup_elem(&names, question);
	if (!slot)
		return 0;
	__u32 key = *slot;
	struct entry *entry = bpf_map_lookup_elem(&entries, &key);
	if (!entry)
		return 0;
	/* The hash map may give what it found to another name in this moment. */
	__u64 differs = (entry->question.type ^ question->type) | (entry->question.size ^ question->size) |
			(entry->question.asker_class ^ question->asker_class);
#pragma unroll
	for (int i = 0; i < NAME_WORDS; i++)
		differs |= entry->question.name[i] ^ question->name[i];
	return differs ? 0 : entry;
}

/* The half of an entry that counts at this generation; 2: none does. */
static __always_inline __u64 half_of(struct entry *entry, __u64 now)
{
	__u64 first = *(volatile __u64 *)&entry->generation[0], second = *(volatile __u64 *)&entry->generation[1];
	if (first <= now && (second > now || first > second))
		return 0;
	return second <= now ? 1 : 2;
}

/* The entry with the answers for this asker, where his class matters; 0 with the reason when there is none. */
static __always_inline struct entry *for_asker(struct packet *p, struct scratch *s, struct entry *entry, __u64 now, int *reason)
{
	__u64 half = half_of(entry, now);
	if (half > 1) {
		*reason = CHANGING;
		return 0;
	}
	struct block *asker = &p->asker;
	asker->classes = *(volatile __u32 *)&entry->classes[half];
	if (!asker->classes) {
		*reason = p->subnet ? OPTIONS : ANSWERED;
		return p->subnet ? 0 : entry;
	}
	if (!p->subnet && p->head == IPV4_HEAD) {
		asker->version = 4;
		asker->bits = CLASSES_BITS + 32;
		__builtin_memcpy(asker->address, s->head + HEAD(20 + 8) + 12, 4);
	} else if (!p->subnet) {
		asker->version = 6;
		asker->bits = CLASSES_BITS + 128;
		__builtin_memcpy(asker->address, s->head + HEAD(40 + 8) + 8, 16);
	}
	/* No block is found for a subnet with askers of several classes. */
	struct asker_class *found = bpf_map_lookup_elem(&blocks, asker);
	p->scope = found ? found->scope : 0;
	if (found && found->number) {
		s->question.asker_class = found->number;
		entry = find(&s->question);
	}
	if (!found || !entry) {
		*reason = UNKNOWN;
		return 0;
	}
	return entry;
}

/* The answer to give now, one of the ready ones; 0 with the reason when there is none. */
static __always_inline struct answer *draw(struct entry *entry, __u64 now, int *reason)
{
	__u64 half = half_of(entry, now);
	if (half > 1) {
		*reason = CHANGING;
		return 0;
	}
	__u64 began = *(volatile __u64 *)&entry->generation[half];
	__u64 variants = *(volatile __u32 *)&entry->variants[half];
	if (variants == 0 || variants > MOST_VARIANTS) {
		*reason = UNKNOWN;
		return 0;
	}
	__u64 which = bpf_get_prandom_u32() % variants;
	BOUND(which, 0, MOST_VARIANTS - 1);
	__u32 slot = *(volatile __u32 *)&entry->answers[half][which];
	struct answer *answer = bpf_map_lookup_elem(&answers, &slot);
	if (!answer || began > now || *(volatile __u64 *)&entry->generation[half] != began) {
		*reason = CHANGING; /* this half is being written: the machine stopped here for a while */
		return 0;
	}
	return answer;
}

/* Whether the backend that told the answers stood behind them within the last second. */
static __always_inline int has_lease(const struct settings *set)
{
	__u32 zero = 0;
	struct leases *all = bpf_map_lookup_elem(&leases, &zero);
	if (!all)
		return 0;
	__u64 renewed = *(volatile __u64 *)&all->renewed_ns[set->holder % HOLDERS];
	return renewed && bpf_ktime_get_ns() - renewed < LEASE_NS; /* read in this order: never one of the future */
}

/* ---- the limit ---- */

/* A search for the innermost zone that holds a name: from the longest of the known zones on. */
struct climb {
	struct scratch *scratch;
	__u32 labels;	   /* of the name */
	__u32 most, least; /* labels of a zone */
	__u32 depth;	   /* of the one that was found */
};

static long next_zone(__u32 turn, void *context)
{
	struct climb *climb = context;
	struct scratch *s = climb->scratch;
	__u32 labels = climb->most - turn; /* of the zone that is looked for */
	if (turn >= climb->most || labels < climb->least)
		return 1;
	__u64 start = s->labels[(climb->labels - labels) % MOST_LABELS];
	for (int i = 0; i < NAME_WORDS; i++)
		__builtin_memcpy(&s->zone.name[i], s->whole + start + 8 * i, 8);
	__u32 *depth = bpf_map_lookup_elem(&zones, &s->zone);
	if (!depth)
		return 0;
	climb->depth = *depth;
	return 1;
}

/* Whether the name has more labels than any of its zone. */
static __always_inline int is_deep(struct scratch *s, const struct limit *limit, __u32 labels)
{
	if (labels <= limit->least_depth || !limit->most_zone_labels)
		return 0;
	struct climb climb = {.scratch = s, .labels = labels, .most = limit->most_zone_labels, .least = limit->least_zone_labels};
	if (climb.most > labels)
		climb.most = labels;
	__u64 *words = (__u64 *)s->whole;
	for (int i = 0; i < WHOLE_WORDS; i++)
		words[i] = lower(words[i]);
	bpf_loop(MOST_LABELS, next_zone, &climb, 0);
	return climb.depth && labels > climb.depth;
}

/* Count a question of this prefix. ANSWERED: it may go on. */
static __always_inline int count_rate(struct source *source, __u64 interval_ns, __u16 slip)
{
	__u64 now = bpf_ktime_get_ns();
	struct rate *rate = bpf_map_lookup_elem(&sources, source);
	if (!rate) {
		struct rate first = {.due_ns = now + interval_ns};
		bpf_map_update_elem(&sources, source, &first, BPF_NOEXIST);
		return ANSWERED;
	}
	__u64 due = *(volatile __u64 *)&rate->due_ns;
	if (due < now)
		due = now;
	if (due + interval_ns <= now + BURST_NS) {
		*(volatile __u64 *)&rate->due_ns = due + interval_ns;
		return ANSWERED;
	}
	return __sync_fetch_and_add(&rate->limited, 1) % (slip ? slip : 1) ? LIMITED_DROPPED : LIMITED_TC;
}

/*
 * Whether a question with this number of labels is above a rate; `source` is whose it is. ANSWERED: it is not.
 * No static function, so that the verifier looks at it once, and not once for each way that leads here.
 */
__noinline int above_rate(struct source *source, __u32 labels)
{
	__u32 zero = 0;
	struct scratch *s = bpf_map_lookup_elem(&scratches, &zero);
	struct settings *set = bpf_map_lookup_elem(&settings, &zero);
	if (!s || !set || !source)
		return ANSWERED;
	const struct limit *limit = &set->limit;
	int reason = ANSWERED;
	struct source whose = *source;
	if (limit->deep_interval_ns && is_deep(s, limit, labels)) {
		whose.what = DEEP;
		reason = count_rate(&whose, limit->deep_interval_ns, limit->slip);
	}
	if (reason == ANSWERED && limit->all_interval_ns) {
		whose.what = ALL;
		reason = count_rate(&whose, limit->all_interval_ns, limit->slip);
	}
	return reason;
}

/* The decision on a question that was read; ANSWERED: it is below the rates. */
static __always_inline int look_at_limit(struct packet *p, struct scratch *s, struct settings *set)
{
	const struct limit *limit = &set->limit;
	struct source source = {};
	if (p->head == IPV4_HEAD) {
		__u32 address = *(__u32 *)(s->head + HEAD(20 + 8) + 12) & limit->ipv4_mask;
		__builtin_memcpy(source.prefix, &address, sizeof(address));
		source.version = 4;
	} else {
		__u32 *address = (__u32 *)(s->head + HEAD(40 + 8) + 8);
		__u64 first = ((__u64)address[1] << 32 | address[0]) & limit->ipv6_mask[0];
		__u64 second = ((__u64)address[3] << 32 | address[2]) & limit->ipv6_mask[1];
		__builtin_memcpy(source.prefix, &first, sizeof(first));
		__builtin_memcpy(source.prefix + 8, &second, sizeof(second));
		source.version = 6;
	}
	if (p->labels > limit->least_depth) {
		__u64 size = p->behind - QUESTION_REST - DNS_HEADER;
		__builtin_memset(s->whole, 0, sizeof(s->whole));
		BOUND(size, 1, MOST_NAME_BYTES);
		if (load(p, p->head + DNS_HEADER, s->whole, size))
			return ANSWERED;
	}
	return above_rate(&source, p->labels);
}

/* Whether an OPT record of version 0 is the first behind the question: then one belongs into the answer. */
static __always_inline void note_options(struct packet *p, struct scratch *s)
{
	__u64 at = p->behind;
	p->options = p->dnssec = p->subnet = 0;
	BOUND(at, SHORTEST, DNS_HEADER + MOST_NAME_BYTES + QUESTION_REST);
	if (p->dns < at + OPT_BYTES)
		return;
	__u8 *dns = s->dns, *opt = dns + at;
	if (two_bytes(dns + 6) || two_bytes(dns + 8) || !(dns[10] | dns[11]))
		return;
	if (opt[0] || two_bytes(opt + 1) != TYPE_OPT || opt[6])
		return;
	p->options = 1;
	p->dnssec = two_bytes(opt + 7) & DO;
}

/* ---- the packet ---- */

static __always_inline void turn_round(struct packet *p, struct scratch *s, __u32 dns)
{
	__u8 mac[6];
	__u16 *udp = (__u16 *)(s->head + HEAD(8));
	__u16 port = udp[0];
	p->is_turned = 1;
	udp[0] = udp[1];
	udp[1] = port;
	udp[2] = bpf_htons(8 + dns);
	if (p->head == IPV4_HEAD) {
		__u8 *ethernet = s->head + HEAD(IPV4_HEAD), *ip = ethernet + 14;
		__builtin_memcpy(mac, ethernet, 6);
		__builtin_memcpy(ethernet, ethernet + 6, 6);
		__builtin_memcpy(ethernet + 6, mac, 6);
		__u32 source = *(__u32 *)(ip + 12);
		*(__u32 *)(ip + 12) = *(__u32 *)(ip + 16);
		*(__u32 *)(ip + 16) = source;
		ip[1] = 0;
		put_two_bytes(ip + 2, 20 + 8 + dns);
		put_two_bytes(ip + 4, 0);
		put_two_bytes(ip + 6, 0x4000); /* never a fragment, so it needs no identification (RFC 6864) */
		ip[8] = HOST_LIFE;
		put_two_bytes(ip + 10, 0);
		*(__u16 *)(ip + 10) = ~fold((__u32)bpf_csum_diff(0, 0, (void *)ip, 20, 0));
	} else {
		__u8 *ethernet = s->head + HEAD(IPV6_HEAD), *ip = ethernet + 14;
		__builtin_memcpy(mac, ethernet, 6);
		__builtin_memcpy(ethernet, ethernet + 6, 6);
		__builtin_memcpy(ethernet + 6, mac, 6);
		*(__u32 *)ip = bpf_htonl(0x60000000);
		put_two_bytes(ip + 4, 8 + dns);
		ip[7] = HOST_LIFE;
		__u32 *source = (__u32 *)(ip + 8);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			__u32 word = source[i];
			source[i] = source[i + 4];
			source[i + 4] = word;
		}
	}
}

/* The client subnet of the question, with the scope of the answer; what is behind the address are zeros. */
static __always_inline void write_subnet(const struct packet *p, __u8 *option)
{
	option[1] = CLIENT_SUBNET;
	option[3] = p->subnet - SUBNET_FIXED;
	option[5] = p->asker.version == 4 ? 1 : 2;
	option[6] = p->asker.bits - CLASSES_BITS;
	option[7] = p->scope;
	__builtin_memcpy(option + SUBNET_HEAD, p->asker.address, sizeof(p->asker.address));
}

/* Make the packet the answer; of one that is limited: nothing but TC. Says what came of it. */
static __always_inline int write_answer(struct packet *p, struct scratch *s, struct settings *set, struct answer *answer)
{
	__u64 behind = p->behind, size = answer ? answer->size : 0, subnet = p->subnet;
	BOUND(subnet, 0, MOST_SUBNET_BYTES);
	BOUND(behind, SHORTEST, DNS_HEADER + MOST_NAME_BYTES + QUESTION_REST);
	BOUND(size, 0, RECORD_BYTES);
	__u64 opt = p->options ? OPT_BYTES + subnet : 0;
	__u32 dns = behind + size + opt;
	if (dns > MOST_ANSWER_BYTES)
		return OTHER_QUESTION;
	__u8 *header = s->dns;
	__u16 flags = (answer ? FLAGS_OF_ANSWER : FLAGS_OF_LIMITED) | (two_bytes(header + 2) & FLAG_RD);
	put_two_bytes(header + 2, flags);
	put_two_bytes(header + 6, answer ? answer->answers : 0);
	put_two_bytes(header + 8, 0);
	put_two_bytes(header + 10, (answer ? answer->additional : 0) + (opt != 0));
	s->dns[behind] = 0;
	s->dns[behind + 1] = 0;
	s->dns[behind + 2] = 0;
	turn_round(p, s, dns);
	__u16 *udp = (__u16 *)(s->head + HEAD(8));
	__u64 sum = (__u64)p->addresses + udp[2];
	if (p->is_partial && !p->is_xdp) {
		udp[3] = fold(sum);
	} else {
		sum += (__u32)bpf_csum_diff(0, 0, (void *)s->dns, (behind + 3) & ~3ull, 0);
		sum += udp[0] + udp[1] + udp[2];
		__u16 own = answer ? answer->checksum : 0;
		sum += behind & 1 ? swapped(own) : own;
	}
	if (opt) {
		__builtin_memset(s->opt, 0, sizeof(s->opt));
		s->opt[2] = TYPE_OPT;
		put_two_bytes(s->opt + 3, set->payload);
		put_two_bytes(s->opt + 7, p->dnssec);
		if (subnet) {
			s->opt[10] = subnet;
			write_subnet(p, s->opt + OPT_BYTES);
		}
		__u16 own = fold((__u32)bpf_csum_diff(0, 0, (void *)s->opt, sizeof(s->opt), 0));
		sum += (behind + size) & 1 ? swapped(own) : own;
	}
	if (!p->is_partial || p->is_xdp) {
		__u16 check = ~fold(sum);
		udp[3] = check ? check : 0xffff;
	}
	if (resize(p, p->head + dns))
		return NOT_GROWN;
	long failed = p->head == IPV4_HEAD
			      ? store(p, 0, s->head + HEAD(IPV4_HEAD), IPV4_HEAD + DNS_HEADER)
			      : store(p, 0, s->head + HEAD(IPV6_HEAD), IPV6_HEAD + DNS_HEADER);
	if (answer) {
		BOUND(size, 1, RECORD_BYTES); /* none is empty */
		failed |= store(p, p->head + behind, answer->bytes, size);
	}
	if (opt) {
		BOUND(opt, OPT_BYTES, OPT_BYTES + MOST_SUBNET_BYTES);
		failed |= store(p, p->head + behind + size, s->opt, opt);
	}
	return failed ? NOT_WRITTEN : ANSWERED;
}

/* Tell what became of a question, when that is final. */
static __always_inline void tell(struct packet *p, struct scratch *s, int reason, int has_question)
{
	struct decision *told = bpf_ringbuf_reserve(&decisions, sizeof(*told), 0);
	if (!told)
		return;
	__builtin_memset(told, 0, sizeof(*told));
	if (has_question)
		told->question = s->question;
	told->reason = reason;
	if (p->head == IPV6_HEAD) {
		told->version = 6;
		__builtin_memcpy(told->source, s->head + HEAD(40 + 8) + (p->is_turned ? 24 : 8), 16);
	} else {
		told->version = 4;
		__builtin_memcpy(told->source, s->head + HEAD(20 + 8) + (p->is_turned ? 16 : 12), 4);
	}
	__builtin_memcpy(&told->port, s->head + HEAD(8) + (p->is_turned ? 2 : 0), 2);
	bpf_ringbuf_submit(told, 0);
}

/* The fate of a packet: -1: not for us; else its reason. */
static __always_inline int decide(struct packet *p)
{
	__u32 zero = 0;
	struct scratch *s = bpf_map_lookup_elem(&scratches, &zero);
	struct settings *set = bpf_map_lookup_elem(&settings, &zero);
	if (!s || !set)
		return -1;
	int reason = read_head(p, s), has_question = 0;
	if (reason < 0)
		return reason;
	if (reason == ANSWERED)
		reason = read_checked(p, s);
	if (reason == ANSWERED) {
		reason = read_question(p, s);
		has_question = reason == ANSWERED;
	}
	struct entry *entry = 0, *of_class = 0;
	struct answer *answer = 0;
	__u64 now = *(volatile __u64 *)&set->generation;
	int is_leased = has_lease(set);
	int limited = p->behind && set->limit.slip && is_leased ? look_at_limit(p, s, set) : ANSWERED;
	FORGET(limited);
	FORGET(reason);
	if (limited != ANSWERED) {
		reason = limited;
	} else if (reason == ANSWERED) {
		entry = find(&s->question);
		reason = entry ? read_options(p, s, set) : UNKNOWN;
	}
	if (reason == ANSWERED && !is_leased)
		reason = NO_LEASE;
	if (reason == ANSWERED && entry)
		of_class = for_asker(p, s, entry, now, &reason);
	if (of_class)
		answer = draw(of_class, now, &reason);
	if (reason == LIMITED_TC)
		note_options(p, s);
	if (answer || reason == LIMITED_TC) {
		int written = write_answer(p, s, set, answer);
		reason = written == ANSWERED ? reason : written;
	}
	if (entry && (reason == NOT_GROWN || reason == NOT_WRITTEN))
		__sync_fetch_and_add(&entry->failed, 1);
	else if (entry)
		__sync_fetch_and_add(reason == ANSWERED ? &entry->answered : &entry->passed, 1);
	count(reason);
	if (set->trace)
		tell(p, s, reason, has_question);
	return reason;
}

SEC("tc")
int fastpath_tc(struct __sk_buff *skb)
{
	/* Joined segments, and frames of a VLAN that is not this interface, are for the kernel. */
	if (skb->pkt_type != 0 || skb->gso_size || skb->vlan_present)
		return TC_ACT_UNSPEC;
	/* A question that came encrypted is answered encrypted, by PowerDNS. */
	struct bpf_xfrm_state decrypted;
	if (has_ipsec && bpf_skb_get_xfrm_state(skb, 0, &decrypted, sizeof(decrypted), 0) == 0)
		return TC_ACT_UNSPEC;
	struct packet p = {.context = skb, .size = skb->len, .interface = skb->ifindex};
	switch (decide(&p)) {
	case ANSWERED:
	case LIMITED_TC:
		return bpf_redirect(p.interface, 0);
	case NOT_WRITTEN:
	case LIMITED_DROPPED:
		return TC_ACT_SHOT;
	default:
		return TC_ACT_UNSPEC;
	}
}

SEC("xdp")
int fastpath_xdp(struct xdp_md *context)
{
	struct packet p = {.context = context,
			   .size = context->data_end - context->data,
			   .interface = context->ingress_ifindex,
			   .is_xdp = 1};
	switch (decide(&p)) {
	case ANSWERED:
	case LIMITED_TC:
		return XDP_TX;
	case NOT_WRITTEN:
	case LIMITED_DROPPED:
		return XDP_DROP;
	default:
		return XDP_PASS;
	}
}

char _license[] SEC("license") = "Apache-2.0";
