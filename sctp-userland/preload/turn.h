/* Readers of one socket take turns: those of other threads, and those of other processes that hold it. */
#ifndef TURN_H
#define TURN_H

#include <pthread.h>
#include <signal.h>
#include <stdint.h>

struct turn {
	pthread_mutex_t *lock;
	sigset_t signals;
	int cancellation;
};

/* Wait for this descriptor's turn, and end it. known: fd_known(). Between them nothing may wait for a peer or another program. errno stays as it is. */
void turn_begin(int fd, uint64_t known, struct turn *turn);
void turn_end(int fd, struct turn *turn);

#endif
