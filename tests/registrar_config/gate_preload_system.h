/* The behaviour of gate_preload_system.c, set by gate_preload.c. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct system_below {
	bool is_notification;
	uint8_t bytes[64]; /* what is received, of the association 7 of 10.0.0.2 */
	size_t length;
	int failures; /* of the next look-ups of a peer's addresses */
	bool is_unconfirmed;
	int asked; /* whether an address is confirmed */
};

extern struct system_below below;
