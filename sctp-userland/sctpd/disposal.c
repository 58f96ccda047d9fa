/* A socket doesn't linger when the last to have it is a task that ends (Linux never lets these wait), nor does one in another one's queue. So
 * each lot of one user's sockets is given to a new task (tasks.h), which has a table of descriptors of its own, and ends. What else may take
 * long there (a file of a file system in user space, which writes back) holds up nobody, and no descriptor of anybody else. */
#define _GNU_SOURCE
#include "disposal.h"

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "loop.h"
#include "tasks.h"

#define LOT 253 /* the most the kernel lets one message bring */
#define PAUSE_MS 20 /* between a user's lots that aren't full: a task for each. Twice as long for each of his tasks that hasn't ended */
#define DOUBLED_MAX 9 /* times */
#define STACK (256 * 1024)

struct queue {
	struct queue *next;
	uid_t user;
	int waiting[LOT], count;
	uint64_t sent_ms;
};

static int outbox = -1, inbox = -1;
static struct queue *queues;

/* Of the thread that starts the tasks, as their descriptors are copies of its few. It does so while the loop waits for its answer. */
static sem_t asked, answered;
static uid_t for_user;
static bool started;

/* A lot that is on its way, since no task could be started. */
static bool stopped;
static uid_t stopped_user;

/* Have a table of one's own from now on, with what is open up to this number. */
static bool has_own_table(int last)
{
	return close_range((unsigned int)last + 1, ~0U, CLOSE_RANGE_UNSHARE) == 0;
}

static TASK_CODE int take_a_lot(void *nothing)
{
	char bytes[1], control[CMSG_SPACE(LOT * sizeof(int))];
	struct iovec vector = { bytes, sizeof(bytes) };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };

	(void)nothing;
	syscall(SYS_prctl, PR_SET_NAME, "sctpd-disposes");
	syscall(SYS_recvmsg, inbox, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC); /* it is there */
	return 0;
}

static void wait_for(sem_t *semaphore)
{
	while (sem_wait(semaphore) < 0)
		;
}

static void *start_tasks(void *nothing)
{
	int number = 0;

	(void)nothing;
	started = has_own_table(inbox);
	if (!started) {
		sem_post(&answered);
		return NULL;
	}
	close_range(0, (unsigned int)inbox - 1, 0); /* others wait for the end of some of these */
	while (open("/dev/null", O_RDWR | O_CLOEXEC) >= 0 && ++number <= STDERR_FILENO)
		;
	for (;;) {
		sem_post(&answered);
		wait_for(&asked);
		started = task_start(for_user, 0, take_a_lot, NULL) >= 0;
	}
	return NULL;
}

static bool start_task(uid_t user)
{
	for_user = user;
	sem_post(&asked);
	wait_for(&answered);
	return started;
}

/* No signal is for the thread: the loop reads them. */
static bool start_thread(void)
{
	pthread_attr_t attributes;
	pthread_t thread;
	sigset_t all, before;
	bool begun;

	sigfillset(&all);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, STACK);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	begun = pthread_create(&thread, &attributes, start_tasks, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	if (begun)
		wait_for(&answered);
	return begun && started;
}

void disposal_start(void)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return;
	inbox = pair[0];
	outbox = pair[1];
	sem_init(&asked, 0, 0);
	sem_init(&answered, 0, 0);
	if (start_thread())
		return;
	close(inbox);
	close(outbox);
	outbox = -1;
	log_line("no tasks for what lingers (Linux 5.9 is needed, and close_range()): it holds up what else waits to be closed");
}

/* When they are closed here, there are others on the way: these are taken only then. */
static bool send_lot(struct queue *queue)
{
	char control[CMSG_SPACE(LOT * sizeof(int))] = { 0 };
	size_t size = (size_t)queue->count * sizeof(int);
	struct iovec vector = { "", 1 };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(size) };
	struct cmsghdr *item = CMSG_FIRSTHDR(&message);

	if (stopped && !start_task(stopped_user))
		return false;
	stopped = false;
	item->cmsg_level = SOL_SOCKET;
	item->cmsg_type = SCM_RIGHTS;
	item->cmsg_len = CMSG_LEN(size);
	memcpy(CMSG_DATA(item), queue->waiting, size);
	if (sendmsg(outbox, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return false;
	while (queue->count > 0)
		close(queue->waiting[--queue->count]);
	queue->sent_ms = loop_now_ms();
	stopped = !start_task(queue->user);
	stopped_user = queue->user;
	return true;
}

static struct queue *queue_of(uid_t user)
{
	struct queue *queue = queues;

	while (queue != NULL && queue->user != user)
		queue = queue->next;
	if (queue != NULL || (queue = calloc(1, sizeof(*queue))) == NULL)
		return queue;
	queue->user = user;
	queue->next = queues;
	queues = queue;
	return queue;
}

bool disposal_add(uid_t user, int fd)
{
	struct queue *queue = outbox < 0 ? NULL : queue_of(user);

	if (queue == NULL || (queue->count == LOT && !send_lot(queue)))
		return false;
	queue->waiting[queue->count++] = fd;
	return true;
}

/* A few that come one by one, again and again, are to cost less and less tasks, should these not end. */
static uint64_t pause_ms(const struct queue *queue)
{
	int tasks = tasks_of(queue->user);

	return PAUSE_MS << (tasks < DOUBLED_MAX ? tasks : DOUBLED_MAX);
}

/* Send what waits when it is due. Return the ms until then, 0: the user has nothing here any more. */
static int run(struct queue *queue)
{
	uint64_t pause = pause_ms(queue), passed = loop_now_ms() - queue->sent_ms;

	if (passed < pause && queue->count < LOT)
		return (int)(pause - passed);
	if (queue->count == 0)
		return 0;
	send_lot(queue);
	return PAUSE_MS;
}

int disposal_run(void)
{
	struct queue **link = &queues, *queue;
	int next_ms = -1, own_ms;

	while ((queue = *link) != NULL) {
		own_ms = run(queue);
		if (own_ms == 0) {
			*link = queue->next;
			free(queue);
			continue;
		}
		if (next_ms < 0 || own_ms < next_ms)
			next_ms = own_ms;
		link = &queue->next;
	}
	if (stopped) {
		stopped = !start_task(stopped_user);
		next_ms = stopped ? PAUSE_MS : next_ms;
	}
	return next_ms;
}
