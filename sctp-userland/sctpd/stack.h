/* usrsctp in one thread: raw sockets in and out, its timers, its wake-ups. */
#ifndef STACK_H
#define STACK_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <usrsctp.h>

struct stack_settings {
	uint32_t rto_min_ms, rto_initial_ms, rto_max_ms;
	uint32_t sack_delay_ms;
	uint32_t heartbeat_ms;
	uint32_t init_retransmissions, association_retransmissions, path_retransmissions;
	bool debug;
};

extern const struct stack_settings stack_defaults; /* a kernel's */

/* Open the raw sockets and start usrsctp. Return 0 or -errno (-EPERM, -EACCES: no CAP_NET_RAW). */
int stack_start(const struct stack_settings *settings);

/* Run work that usrsctp wants done outside of what started it (a thread of its own elsewhere). */
void stack_run_deferred_work(void);

/* The identifiers of a one-to-many socket's associations, good until the next call; return their number. */
uint32_t stack_association_list(struct socket *so, const sctp_assoc_t **identifiers);

#define OUT_STREAMS 10 /* of an association whose program says nothing else, as in a kernel */
#define ASSOCIATION_COST 4096 /* bytes of memory, with one path */
#define OUT_STREAM_COST 64
#define IN_STREAM_COST 40
#define PATH_COST 704 /* of each other one */

static inline uint64_t association_cost(uint16_t out_streams, uint16_t in_streams, unsigned int more_paths)
{
	return ASSOCIATION_COST + out_streams * OUT_STREAM_COST + in_streams * IN_STREAM_COST + more_paths * PATH_COST;
}

/* Add what this socket has queued, both ways, and what its associations take, of which each has so many outbound streams; with those that
 * wait to be accepted. */
struct stack_use {
	uint64_t queued, associations; /* bytes */
};
void stack_measure(struct socket *so, bool one_to_one, uint16_t out_streams, struct stack_use *use);

/* Add the same of one association (0: the one of a one-to-one socket); return its identifier, 0: there is none. */
sctp_assoc_t stack_measure_association(struct socket *so, sctp_assoc_t identifier, uint16_t out_streams, struct stack_use *use);

/* How many associations were begun since the last call, by either side, and how many paths more than one each that peers have told of. */
struct stack_begun {
	unsigned int associations, more_paths;
};
struct stack_begun stack_begun(void);

/* A peer has told so many addresses. */
void stack_note_addresses(unsigned int number);

/* Provided by closed.c: this association is no more; its address may be another one's from now on. */
struct sctp_tcb;
void closed_ended(const struct sctp_tcb *tcb);

/* Provided by the sockets: usrsctp has something to say about this one. Called from deep inside usrsctp: only note it. */
void socket_wakeup(struct socket *so);

#endif
