/* usrsctp in one thread: raw sockets in and out, its timers, its wake-ups. */
#ifndef STACK_H
#define STACK_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <usrsctp.h>

struct stack_settings {
	long rto_min_ms, rto_initial_ms, rto_max_ms, sack_delay_ms, heartbeat_ms;
	long init_retransmissions, association_retransmissions, path_retransmissions;
	bool debug;
};

extern const struct stack_settings stack_defaults; /* a kernel's */

/* Open the raw sockets and start usrsctp. Return 0 or -errno (-EPERM, -EACCES: no CAP_NET_RAW). */
int stack_start(const struct stack_settings *settings);

/* Run work that usrsctp wants done outside of what started it (a thread of its own elsewhere). */
void stack_run_deferred_work(void);

/* Run the timers that are due. */
void timers_run(void);

/* The time until the next timer in ms; -1: there is none. */
int timers_next_ms(void);

struct sctp_socket;

/* The identifiers of a socket's associations, good until the next call; a one-to-one socket's has 0. Return how many there are. */
uint32_t stack_association_list(const struct sctp_socket *s, const sctp_assoc_t **identifiers);

#define OUT_STREAMS 10 /* of an association whose program says nothing else, as in a kernel */
#define ASSOCIATION_COST (16 * 1024) /* bytes of memory, as an estimate until it is measured */

#endif
