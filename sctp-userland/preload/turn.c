/* Reading part of a message takes several calls, which must not mix with others'. Between processes a record lock on the descriptor sees to
 * that: only holders of the socket can have it, and the kernel takes it back from one that dies. All threads of a process have it together
 * (POSIX), so they wait for each other here first.
 *
 * A turn lasts some microseconds. A signal's handler, which may read the same socket, waits until it is over, as does a cancellation. */
#include "turn.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>

#include "fds.h"

#define LOCKS 64
#define PLACE 0x5c7b /* of the record: where no program has one of its own */

static pthread_mutex_t locks[LOCKS] = { [0 ... LOCKS - 1] = PTHREAD_MUTEX_INITIALIZER };

/* The threads that had their turn when a child was made don't exist there. */
static void forked(void)
{
	const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;

	for (int i = 0; i < LOCKS; i++)
		locks[i] = fresh;
}

__attribute__((constructor)) static void start(void)
{
	pthread_atfork(NULL, NULL, forked);
}

static int record_lock(int fd, int command, short type)
{
	struct flock record = { .l_type = type, .l_whence = SEEK_SET, .l_start = PLACE, .l_len = 1 };

	return fcntl(fd, command, &record);
}

void turn_begin(int fd, uint64_t known, struct turn *turn)
{
	int saved = errno;
	sigset_t all;

	sigfillset(&all);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &turn->cancellation);
	pthread_sigmask(SIG_BLOCK, &all, &turn->signals);
	turn->lock = &locks[known_inode(known) % LOCKS];
	pthread_mutex_lock(turn->lock);
	/* The kernel sees a deadlock where another thread of the one that has the lock waits for a lock of this process. */
	while (record_lock(fd, F_SETLKW, F_WRLCK) < 0 && (errno == EDEADLK || errno == EINTR))
		sched_yield();
	errno = saved;
}

void turn_end(int fd, struct turn *turn)
{
	int saved = errno;

	record_lock(fd, F_SETLK, F_UNLCK);
	pthread_mutex_unlock(turn->lock);
	pthread_sigmask(SIG_SETMASK, &turn->signals, NULL);
	pthread_setcancelstate(turn->cancellation, NULL);
	errno = saved;
}
