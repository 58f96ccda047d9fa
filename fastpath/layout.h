/*
 * What the BPF program and the daemon share: the maps' keys and values, and the reasons that are counted.
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

/* A question: its name in lower case on the wire, padded with zeros, and its type in the host's byte order. */
struct question {
	__u64 name[NAME_WORDS];
	__u16 type;
	__u16 size; /* of the name, its final zero included */
	__u32 unused;
};

/*
 * What is answered to a question. One half is read while the other is written: the later one whose generation has come
 * counts. A half with no variants says that there is no answer any more.
 */
struct entry {
	struct question question;
	__u64 generation[2];
	__u32 variants[2];
	__u32 answers[2][MOST_VARIANTS]; /* places in the map of answers */
	__u64 answered;
	__u64 passed;
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

/* Questions are taken at these addresses and ports only; an IPv4 address stands in the first four bytes. */
struct destination {
	__u8 address[16];
	__be16 port;
	__u16 version; /* 4 or 6 */
};

struct settings {
	__u64 generation; /* changes up to this one are visible */
	__u32 trace;	  /* whether decisions are told */
	__u16 payload;	  /* the UDP size that PowerDNS tells in its OPT record */
	__u16 holder;	  /* whose lease counts */
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
	reason(NOT_WRITTEN, "not_written")

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
