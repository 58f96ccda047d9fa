/* The one event loop: descriptors with a function each. One thread runs it, so nothing above it takes locks.
 *
 * All clients and all associations wait for each turn of it. So a turn
 *   never waits for a client, nor for a peer: every call on a descriptor is one that doesn't block;
 *   never closes what a client passed, nor what may hold such descriptors unread: the last close of a stranger's file may wait for as long as he
 *     likes (SO_LINGER, a file system of his own). closer.h does it elsewhere;
 *   never works in proportion to what one client or peer has queued: so many messages, packets or batches, then the others have their turn;
 *   never works for a packet before its verification tag is known to be right, beyond looking for its association;
 *   never has the next turn wait for more than what is due: the time to wait is computed behind all work of a turn, which may start timers.
 * The one wait inside a turn: a client asks for all that it sent to this host (OP_TURN); packets that are still with the kernel are waited for,
 * 2 ms at most (OWN_MS). `sctpd --status` tells whether these hold: the longest turn, the latest timer, and how often the net in main.c found
 * what no wake-up had told.
 */
#ifndef LOOP_H
#define LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

struct watch {
	int fd;
	uint32_t events; /* EPOLL* now asked for; hang-up and error always come */
	void (*ready)(struct watch *watch, uint32_t events);
};

/* All return 0 or -errno. */
int loop_start(void);
int loop_add(struct watch *watch);
int loop_change(struct watch *watch, uint32_t events);
void loop_remove(struct watch *watch);

/* Wait at most timeout_ms (-1: for ever) and call what is ready. */
void loop_wait(int timeout_ms);

uint64_t loop_now_ms(void);

/* Whether the rules hold, since the start. */
extern struct loop_figures {
	uint64_t longest_turn_us;
	uint64_t latest_timer_ms; /* how long after its time the latest timer ran */
	uint64_t found_by_net;	  /* work that no wake-up had told: 0 unless one is missing */
} loop_figures;

/* Whether, with this new descriptor, some are left: each call brings one along, and sctpd must be able to take it. */
bool loop_keeps_descriptors(int fd);

/* Log one line to standard error, some in a minute; no newline in the format. */
void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Standard error is a file from now on: lines tell time and process, and it begins anew when it is too long. */
void log_to_file(void);

/* See to that, before something else writes to it. */
void log_bound(void);

#endif
