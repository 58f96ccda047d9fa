/*
 * The shared memory of the BPF program and the daemon: the maps' keys and values, and the reasons that are counted.
 *
 * Only these two use it, on one machine and of one build: it is no interface to anything else.
 */
#ifndef FASTPATH_LAYOUT_H
#define FASTPATH_LAYOUT_H

#include <linux/types.h>

#define NAME_BYTES 128 /* of a name on the wire; questions for longer names are passed on */
#define NAME_WORDS (NAME_BYTES / 8)
#define MOST_VARIANTS 16 /* ready answers to one question, of which each question draws one */
#define RECORD_BYTES 496 /* of the records of one answer, which is 512 bytes at most (RFC 1035 section 4.2.1) */
#define MOST_ANSWER_BYTES 512
#define NONE 0xffffffffu
#define MOST_NAME_BYTES 255 /* of any name (RFC 1035 section 2.3.4) */
#define MOST_ZONES 4096	    /* whose depth is known to the limit */
#define MOST_SOURCES 65536  /* prefixes whose rate is known; the longest unused gives way */

#define MOST_BLOCKS (1u << 20) /* of askers' networks */

/*
 * A question: its name in lower case on the wire, padded with zeros, and its type in the host's byte order. Askers of one class
 * get the same answers to it; those of class 0, and all where there are no classes, have the class 0.
 */
struct question {
	__u64 name[NAME_WORDS];
	__u16 type;
	__u16 size; /* of the name, its final zero included */
	__u16 asker_class;
	__u16 unused;
};

/*
 * The answers to a question. One half is read while the other is written: the later one whose generation has come
 * counts. A half with no variants says that there is no answer any more.
 */
struct entry {
	struct question question;
	__u64 generation[2];
	__u32 variants[2];
	__u32 classes[2]; /* in which the asker's class is looked up; 0: it does not matter */
	__u32 answers[2][MOST_VARIANTS]; /* slots in the map of answers */
	__u64 answered;
	__u64 passed;
	__u64 failed; /* answers that could not be written into their packet */
};

/* The records of an answer as they stand behind its question, padded with zeros. */
struct answer {
	__u16 size;
	__u16 answers;	  /* records in the answer section */
	__u16 additional; /* records in the additional section, OPT not counted */
	__u16 checksum;	  /* one's complement sum of the bytes, as if they began at an even offset */
	__u64 unused;
	__u8 bytes[RECORD_BYTES];
};

/* A prefix of askers among those of some classes. All addresses are in a block of these. */
struct block {
	__u32 bits; /* of what follows, those that an asker must have */
	__u32 classes;
	__u32 version; /* 4 or 6 */
	__u8 address[16];
};
#define CLASSES_BITS 64 /* of the classes and the version */

struct asker_class {
	__u16 number;
	__u8 scope; /* of an answer: the length of the prefix, at least 1 */
	__u8 unused;
};

/* Questions are taken at these addresses and ports only; an IPv4 address stands in the first four bytes. */
struct destination {
	__u8 address[16];
	__be16 port;
	__u16 version; /* 4 or 6 */
};

/* A MAC address that frames for this host may have at an interface: in tc the kernel knows, in XDP nobody has looked yet. */
struct station {
	__u32 interface;
	__u8 mac[6];
	__u16 unused;
};
#define MOST_STATIONS 1024
#define MOST_INTERFACES 64

/*
 * The limit of questions from one source prefix. Each prefix may ask this number a second, and as many at once; of those above
 * each `slip`th, the first among them, is answered with TC, so that whoever really asks comes again over TCP.
 */
struct limit {
	__u64 deep_interval_ns; /* between questions for names deeper than any of their zone; 0: not limited */
	__u64 all_interval_ns;	/* between questions of any kind; 0: not limited */
	__u64 ipv6_mask[2];
	__u32 ipv4_mask; /* masks are in the packet's byte order */
	__u16 slip;
	__u8 least_zone_labels, most_zone_labels; /* of the zones whose depth is known */
	__u32 least_depth;			  /* of these zones: a name of no more labels is deep in none */
	__u32 unused;
};

struct settings {
	__u64 generation; /* changes up to this one are visible */
	__u32 trace;	  /* whether decisions are told */
	__u16 payload;	  /* the UDP size that PowerDNS tells in its OPT record */
	__u16 holder;	  /* whose lease counts */
	__u32 subnets;	  /* whether a question's client subnet (RFC 7871) counts, as for PowerDNS */
	__u32 unused;
	struct limit limit;
};

/*
 * When each of the last backends renewed its lease (CLOCK_MONOTONIC; 0: it gave it up). A backend writes its own one to
 * memory that it shares with the program: so it can end the lease also when the daemon is frozen or dead.
 */
#define LEASE_NS 1000000000ull
#define HOLDERS 16
struct leases {
	__u64 renewed_ns[HOLDERS];
};

/* A zone, as the name of a question; its value is how many labels its deepest name has. */
struct zone {
	__u64 name[NAME_WORDS];
};

enum limited { DEEP = 1, ALL };

/* The source whose questions are counted together, and the count. */
struct source {
	__u8 prefix[16];
	__u16 version; /* 4 or 6 */
	__u16 what;    /* DEEP or ALL */
	__u32 unused;
};
struct rate {
	__u64 due_ns;  /* when all questions so far have had their interval */
	__u32 limited; /* questions above the rate */
	__u32 unused;
};

#define REASONS(reason)                                                                                                 \
	reason(ANSWERED, "answered")                                                                                    \
	reason(UNKNOWN, "unknown_name")                                                                                 \
	reason(NO_LEASE, "no_lease")                                                                                    \
	reason(OTHER_QUESTION, "other_question")                                                                        \
	reason(LONG_NAME, "long_name")                                                                                  \
	reason(OPTIONS, "edns")                                                                                         \
	reason(PACKET, "packet")                                                                                        \
	reason(CHECKSUM, "checksum")                                                                                    \
	reason(CHANGING, "changing")                                                                                    \
	reason(NOT_GROWN, "not_grown")                                                                                  \
	reason(NOT_WRITTEN, "not_written")                                                                                   \
	reason(LIMITED_TC, "limited_tc")                                                                                \
	reason(LIMITED_DROPPED, "limited_dropped")

enum reason {
#define AS_NAME(name, text) name,
	REASONS(AS_NAME)
#undef AS_NAME
		REASON_COUNT
};

/* One decision, for `rspdns-fastpath trace`. */
struct decision {
	struct question question;
	__u8 source[16];
	__be16 port;
	__u16 version;
	__u32 reason;
};

#endif
