/*
 * The messages of the socket, in the machine's own byte order: both ends are on one host.
 *
 *   size (4 bytes, of what follows), kind (1 byte), body
 *
 * Whatever comes is checked here; nothing here knows of sockets or maps.
 */
#ifndef FASTPATH_MESSAGES_H
#define FASTPATH_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "limit.h"
#include "near.h"
#include "table.h"

#define PROTOCOL_VERSION 6
#define MOST_MESSAGE_BYTES 16384
#define MOST_ASKED 2000 /* names in one status of those that were asked about; the next one goes on behind them */

enum kind {
	/* From the backend: */
	HELLO = 'H',  /* version (4), payload (2), whether client subnets count (1) */
	/* type (2), class of the askers (2), number of the classes in which theirs is looked up (2), size of the name (1), name,
	 * count (1), each: answers (2), additional (2), size (2), bytes */
	PUT = 'P',
	NEAR = 'N',   /* number of the classes (2), each block: class (2), version (1), length (1), address (16) */
	FORGET = 'F', /* number of the classes (2) */
	COMMIT = 'C', /* number (8) */
	/* deep_per_s (4), all_per_s (4), ipv4_prefix_bits (1), ipv6_prefix_bits (1), slip (2) */
	LIMIT = 'L',
	ZONE = 'Z', /* labels of its deepest name (1; 0: forget it), size of the name (1), name */
	/* From any client: */
	/* Whether of all names, or of those that were asked about since they were told last (1). Asked for while one
	 * is being told, once or more often: one more follows. */
	STATUS = 'S',
	TRACE = 'T',
	DETACH = 'D',
	/* Replies: */
	WELCOME = 'h',	 /* which lease is the backend's (2); the descriptor of struct leases comes along */
	COMMITTED = 'c', /* number (8), names refused (4) */
	PART = 'p',	 /* of JSON; other replies may come between two parts */
	TOLD = 's',	 /* its last part */
	DECIDED = 't',	 /* a line of text */
	DETACHED = 'd',
	REFUSED = 'e', /* text; the connection is closed */
};

struct message {
	uint8_t kind;
	const uint8_t *body;
	size_t size;
};

struct hello {
	uint32_t version;
	uint16_t payload;
	bool subnets;
};

struct zone_depth {
	struct zone zone;
	uint8_t depth;
};

struct put {
	struct question question;
	uint16_t classes;
	uint32_t count;
	struct variant variants[MOST_VARIANTS];
};

#define MOST_BLOCKS_TOLD (MOST_MESSAGE_BYTES / 20)
struct near_blocks {
	uint16_t number;
	uint32_t count;
	struct near_block blocks[MOST_BLOCKS_TOLD];
};

/* Bytes of the first message, 0 when it is not whole yet, -1 when it can't be one. */
long message_read(const uint8_t *bytes, size_t size, struct message *message);

/* Each says whether the body is one. */
bool hello_read(const struct message *message, struct hello *hello);
bool put_read(const struct message *message, struct put *put);
bool near_read(const struct message *message, struct near_blocks *told);
bool forget_read(const struct message *message, uint16_t *number);
bool limit_read(const struct message *message, struct wanted_limit *wanted);
bool zone_depth_read(const struct message *message, struct zone_depth *found);
bool number_read(const struct message *message, uint64_t *number);

#endif
