/* Packets: a client's SYN or INIT taken apart so that many share what is alike, put together again, and refused. Pure. */
#ifndef GUARD_FRAME_H
#define GUARD_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#include "layout.h"

#define MOST_RESET (14 + 4 + 40 + 20)

/* The offsets in a frame of a set-up (without its VLAN tag), and those of its fields that differ from one to the next. */
struct shape {
	bool is_ipv6, is_sctp;
	uint16_t transport; /* offset of the header */
	uint16_t stamp;	    /* offset of TCP's timestamp, of SCTP's initial TSN; 0: none */
};

struct varying {
	uint32_t ip;	/* IPv4: identification; IPv6: its first four bytes, with the flow label */
	uint32_t stamp; /* as on the wire */
};

/* Find the shape of a frame; false when it is no whole SYN or INIT. */
bool frame_shape(const uint8_t *frame, uint16_t size, struct shape *shape);

/* Take what differs out of a frame: zeros stand there then. Addresses, ports and the token are the entry's. */
void frame_take_varying(uint8_t *frame, const struct shape *shape, struct varying *varying);

/* Make the set-up of `entry` from a frame without what differs; `size` bytes, checksums included. */
void frame_fill(uint8_t *frame, uint16_t size, const struct shape *shape, const struct varying *varying,
		const struct entry *entry);

/* The refusal of a set-up, as from its server: RST or ABORT to the client. Returns its size. */
uint16_t frame_refusal(const uint8_t *setup, const struct shape *shape, uint8_t refusal[MOST_RESET]);

/* Put a VLAN tag into a frame that has room for it; the size with it. */
uint16_t frame_tag(uint8_t *frame, uint16_t size, uint16_t tag);

uint32_t crc32c(const uint8_t *bytes, uint16_t size);
uint16_t checksum(const uint8_t *frame, uint16_t size, const struct shape *shape);

#endif
