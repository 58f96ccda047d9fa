/* Calls to sctpd. */
#ifndef CHANNEL_H
#define CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#include "../protocol.h"

struct exchange {
	struct request request; /* version and lengths are filled in */
	const void *address, *data;
	size_t address_length, data_length;
	const struct iovec *parts; /* instead of data: data_length bytes in this number of pieces */
	size_t part_count;
	struct reply reply;
	char *result;	   /* where addresses, then data, go */
	size_t result_room;
	int descriptor;	   /* that came with the reply; -1: none */
	int reserved;	   /* a descriptor open until the reply's comes, so that there is one left for it, plus 1; 0: none */
};

/* Reserve a descriptor for the one that the reply will bring. Return 0, or -1 and errno when there is none. */
int channel_reserve_descriptor(struct exchange *exchange);

/* Give it up, if it's still kept. */
void channel_free_reserved(struct exchange *exchange);

/* Carry out one call about fd (-1: none). Return 0, or -1 with errno: the call's own error, ECONNRESET when sctpd is gone
 * (EPROTONOSUPPORT for a new socket), or EMFILE or ENFILE when there is no descriptor for what comes or for this thread's connection.
 * A reserved descriptor is used or given up. */
int channel_call(int fd, struct exchange *exchange);

/* This process has sent something. */
void channel_note_sent(void);

/* Have sctpd pass on all that was sent before now to this host; if_sent: only if this process has sent something since the last time. Return
 * whether it did: an sctpd without a processor is waited for some milliseconds only. errno stays. */
bool channel_turn(bool if_sent);

/* The number of the connection that this thread's calls go by, another one for each of this process; 0: none yet. */
uint32_t channel_number(void);

#endif
