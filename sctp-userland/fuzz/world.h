/* sctpd in one process with a fuzzer: no socket of it leads outside. Time, randomness and the wire are the fuzzer's, so that
 * one input always does the same. */
#ifndef WORLD_H
#define WORLD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define WIRE_MAX 64 /* packets; more are lost */
#define FUZZ_PACKET_MAX 2000

struct wire_packet {
	int length; /* of an IPv4 datagram, or with v6 of an SCTP packet */
	int v6;
	struct sockaddr_storage source, destination; /* of IPv6 */
	uint8_t bytes[FUZZ_PACKET_MAX];
};

/* The input, eaten from the front. Beyond its end come zeros. */
struct input {
	const uint8_t *at;
	size_t left;
};

uint8_t input_byte(struct input *input);
uint16_t input_short(struct input *input);
size_t input_bytes(struct input *input, void *to, size_t length); /* return how many there were */

/* The packets that sctpd has sent and that have not arrived yet. */
extern struct wire_packet wire[WIRE_MAX];
extern int wire_count;
void wire_drop(int which);

/* Called with each packet as it is sent; may look, not touch. NULL: none. */
extern void (*wire_watcher)(const uint8_t *sctp, int length);

/* Fill in the checksum of an SCTP packet. */
void checksum_set(uint8_t *sctp, int length);

/* Before each input, and after it: no socket, no association is left. */
void world_begin(void);
void world_end(void);

/* Let some time pass and do all that is due; deliver: also what is on the wire. */
void world_turn(uint32_t ms, int deliver);

#endif
