/* Calls to sctpd. */
#ifndef CHANNEL_H
#define CHANNEL_H

#include <stdbool.h>
#include <stddef.h>

#include "../protocol.h"

struct exchange {
	struct request request; /* version and lengths are filled in */
	const void *address, *data;
	size_t address_length, data_length;
	struct reply reply;
	char *result;	   /* where addresses, then data, go */
	size_t result_room;
	int descriptor;	   /* that came with the reply; -1: none */
};

/* Carry out one call about fd (-1: none). Return 0, or -1 with errno: the call's own error, or ECONNRESET when sctpd is gone
 * (EPROTONOSUPPORT for a new socket). */
int channel_call(int fd, struct exchange *exchange);

#endif
