/* What each user, and each of his programs (a client: a process), has here, and how much of it he may have. */
#ifndef USERS_H
#define USERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "stack.h"

struct holding {
	int sockets;
	uint64_t queued;       /* bytes sent and not acknowledged, or received and not read, at the last measurement */
	uint64_t associations; /* bytes these take themselves: measured, and those begun since */
	bool full;             /* no more may be queued */
	bool no_more;          /* no association may begin */
};

struct user {
	struct user *next;
	uid_t id;
	int connections;
	struct holding has;
};

struct client {
	struct client *next;
	struct user *user;
	pid_t process; /* 0: of another namespace of processes; those of one user count as one client */
	int connections;
	struct holding has;
	int closed; /* associations that have outlived their sockets */
	struct stack_use closed_use;
};

struct share_limits {
	int sockets;
	uint64_t bytes; /* queued; the same again for associations */
};

struct user_limits {
	struct share_limits user, client;
	int connections; /* of one user, and never more than are left for others */
	uint64_t memory; /* bytes, of all users together and all that belongs to them */
};

extern struct user_limits user_limits;

/* The entry of a process that has one more connection from now on; NULL: its user may have no more, or out of memory. */
struct client *client_connect(uid_t user, pid_t process);
void client_disconnect(struct client *client);

/* Whether it may have another socket; it has one more, one less. */
bool client_may_open(const struct client *client);
void client_open(struct client *client);
void client_close(struct client *client);

/* An association that takes so much has outlived its socket; it is gone, too. Until then it counts like others. */
void client_keeps_closed(struct client *client, const struct stack_use *use);
void client_lost_closed(struct client *client, const struct stack_use *use);

/* All of them, linked. */
struct user *users_first(void);
struct client *clients_first(void);

/* Whether no more may be queued for it now, its own limit or its user's being reached. */
bool client_is_full(const struct client *client);

/* holdings.c
 * Whether so many bytes more may be queued for it; they are. */
bool client_may_queue(const struct client *client, uint64_t bytes);
void client_queues(struct client *client, uint64_t bytes);

/* Whether an association of so many bytes may begin; it has begun. */
bool client_may_begin(const struct client *client, uint64_t bytes);
void client_begins(struct client *client, uint64_t bytes);

/* Whether a packet for this address and port must be dropped, as its owner is full: one that brings data, or begins an association. */
struct sockaddr;
bool users_refuse(const struct sockaddr *local, bool data, bool begins);

/* These were begun by a peer at this address and port. */
void users_note_begun(const struct sockaddr *local, struct stack_begun begun);

/* So many bytes came in or went out: now and then, what is queued is measured. */
void users_note_traffic(uint64_t bytes);

/* Measure again while someone is full. Return when that is due next, in ms; -1: never. */
int users_run(void);

#endif
