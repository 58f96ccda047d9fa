#include "closer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define FEW 64
#define INTERRUPT_US 2000 /* a close that waits is interrupted so often: the kernel then goes on with SO_LINGER's end in the background */
#define PIPE_SIZE (1024 * 1024) /* bytes: of more descriptors than a process usually may have */
#define STACK_SIZE (128 * 1024)

static int pipe_ends[2] = { -1, -1 };
static uint64_t handed_over;
static atomic_uint_fast64_t closed;
static atomic_bool runs;

static void interrupted(int)
{
}

/* It takes no memory from malloc() and writes no log: both are the loop's. */
static void *run(void *)
{
	static const struct itimerval often = { { 0, INTERRUPT_US }, { 0, INTERRUPT_US } }, never;
	int descriptors[64];
	ssize_t got;
	sigset_t set;
	size_t i;

	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	atomic_store(&runs, true);
	while ((got = read(pipe_ends[0], descriptors, sizeof(descriptors))) > 0 || (got < 0 && errno == EINTR)) {
		if (got < 0)
			continue;
		setitimer(ITIMER_REAL, &often, NULL);
		for (i = 0; i < (size_t)got / sizeof(int); i++)
			close(descriptors[i]);
		setitimer(ITIMER_REAL, &never, NULL);
		atomic_fetch_add(&closed, i);
	}
	return NULL;
}

int closer_start(void)
{
	const struct sigaction action = { .sa_handler = interrupted };
	pthread_attr_t attributes;
	pthread_t thread;
	sigset_t set;
	int error;

	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	if (sigaction(SIGALRM, &action, NULL) < 0 || pthread_sigmask(SIG_BLOCK, &set, NULL) != 0 || pipe2(pipe_ends, O_CLOEXEC) < 0)
		return -errno;
	fcntl(pipe_ends[1], F_SETPIPE_SZ, PIPE_SIZE);
	fcntl(pipe_ends[1], F_SETFL, O_NONBLOCK);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK_SIZE);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	error = pthread_create(&thread, &attributes, run, NULL);
	pthread_attr_destroy(&attributes);
	while (error == 0 && !atomic_load(&runs)) /* what it needs to start it may not call later, see privilege.c */
		usleep(100);
	return -error;
}

void close_elsewhere(int fd)
{
	if (write(pipe_ends[1], &fd, sizeof(fd)) == sizeof(fd))
		handed_over++;
	else
		close(fd); /* a fuzzer, which has no such thread */
}

bool closer_is_behind(void)
{
	return handed_over - atomic_load(&closed) > FEW;
}

bool close_passed(struct msghdr *message, int *kept)
{
	struct cmsghdr *item;
	bool others = message->msg_flags & MSG_CTRUNC;
	int fd;

	if (kept != NULL)
		*kept = -1;
	for (item = message->msg_controllen > 0 ? CMSG_FIRSTHDR(message) : NULL; item != NULL; item = CMSG_NXTHDR(message, item)) {
		const size_t length = item->cmsg_level == SOL_SOCKET && item->cmsg_type == SCM_RIGHTS ? item->cmsg_len - CMSG_LEN(0) : 0;
		size_t at;

		for (at = 0; at + sizeof(fd) <= length; at += sizeof(fd)) {
			memcpy(&fd, CMSG_DATA(item) + at, sizeof(fd));
			if (kept != NULL && *kept < 0) {
				*kept = fd;
			} else {
				close_elsewhere(fd);
				others = true;
			}
		}
	}
	return others;
}
