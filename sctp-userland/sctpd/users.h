/* What each user has here, and how much of it he may have. */
#ifndef USERS_H
#define USERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct user {
	struct user *next;
	uid_t id;
	int sockets, connections;
	uint64_t queued; /* bytes sent and not acknowledged, or received and not read, at the last measurement */
	bool full;       /* ... which were too many */
};

struct user_limits {
	int sockets, connections;    /* of one user */
	uint64_t queued;             /* bytes, of one user */
	uint64_t memory;             /* bytes, of all users together and all that belongs to them */
};

extern struct user_limits user_limits;

/* The entry of a user, who holds one more socket or connection from now on; NULL: out of memory. */
struct user *user_take_socket(uid_t id);
struct user *user_take_connection(uid_t id);
void user_drop_socket(struct user *user);
void user_drop_connection(struct user *user);

/* Whether this user may have another one. */
bool user_may_open(uid_t id);
bool user_may_connect(uid_t id);

/* Whether no more may be queued for this user now, his own limit or everybody's being reached. */
bool user_is_full(const struct user *user);

/* Whether a packet that brings something for this port (host order) must be dropped for that reason. */
bool users_refuse(uint16_t port);

/* So many bytes came in or went out: now and then, what is queued is measured. */
void users_note_traffic(uint64_t bytes);

/* Measure again while someone is full. Return when that is due next, in ms; -1: never. */
int users_run(uint64_t now_ms);

/* For --status. */
struct user *users_first(void);
uint64_t users_memory(void);

#endif
