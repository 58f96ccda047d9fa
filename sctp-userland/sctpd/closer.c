#define _GNU_SOURCE
#include "closer.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop.h"

#define WAITING_MAX 64 /* of one user */
#define STACK (256 * 1024)

struct descriptor {
	struct descriptor *next;
	uid_t user;
	int fd;
};

/* All that the thread touches. The first is the one that is being closed. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static struct descriptor *first, **last = &first;

static void *close_all(void *nothing)
{
	const struct linger never = { 0 };
	struct descriptor *closed;

	(void)nothing;
	pthread_mutex_lock(&lock);
	for (;;) {
		while (first == NULL)
			pthread_cond_wait(&more, &lock);
		closed = first;
		pthread_mutex_unlock(&lock);
		setsockopt(closed->fd, SOL_SOCKET, SO_LINGER, &never, sizeof(never)); /* those behind it needn't wait either */
		close(closed->fd);
		pthread_mutex_lock(&lock);
		first = closed->next;
		if (first == NULL)
			last = &first;
		free(closed);
	}
	return NULL;
}

/* No signal is for the thread: the loop reads them. */
static bool start(void)
{
	pthread_attr_t attributes;
	pthread_t thread;
	sigset_t all, before;
	bool started;

	sigfillset(&all);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, STACK);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	started = pthread_create(&thread, &attributes, close_all, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return started;
}

bool closer_is_behind(uid_t user)
{
	static bool told;
	const struct descriptor *one;
	int waiting = 0;

	pthread_mutex_lock(&lock);
	for (one = first; one != NULL && waiting < WAITING_MAX; one = one->next)
		waiting += one->user == user;
	told = told && first != NULL;
	pthread_mutex_unlock(&lock);
	if (waiting < WAITING_MAX)
		return false;
	if (!told)
		log_line("user %u has passed descriptors that are not closed yet: until they are, his connections are refused", user);
	told = true;
	return true;
}

void closer_close(uid_t user, int fd)
{
	static bool started;
	struct descriptor *closing = malloc(sizeof(*closing));

	started = started || start();
	if (closing == NULL || !started) {
		free(closing);
		close(fd);
		return;
	}
	*closing = (struct descriptor){ NULL, user, fd };
	pthread_mutex_lock(&lock);
	*last = closing;
	last = &closing->next;
	pthread_cond_signal(&more);
	pthread_mutex_unlock(&lock);
}
