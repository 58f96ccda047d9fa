#define _GNU_SOURCE
#include "users.h"

#include <linux/sockios.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "loop.h"
#include "sockets.h"
#include "stack.h"

#define STEP (1024 * 1024) /* bytes of traffic after which what is queued is measured again */
#define AGAIN_MS 50        /* ... and while someone is full */

struct user_limits user_limits = {
	.sockets = 16384, .connections = 1024, .queued = 64 * 1024 * 1024, .memory = 512 * 1024 * 1024,
};

static struct user *first;
static uint64_t traffic, memory, measured_ms;
static bool all_full, any_full;

static struct user *find(uid_t id)
{
	struct user *user = first;

	while (user != NULL && user->id != id)
		user = user->next;
	return user;
}

static struct user *find_or_make(uid_t id)
{
	struct user *user = find(id);

	if (user != NULL || (user = calloc(1, sizeof(*user))) == NULL)
		return user;
	user->id = id;
	user->next = first;
	first = user;
	return user;
}

static void forget_if_gone(struct user *user)
{
	struct user **link;

	if (user->sockets > 0 || user->connections > 0)
		return;
	for (link = &first; *link != user;)
		link = &(*link)->next;
	*link = user->next;
	free(user);
}

struct user *user_take_socket(uid_t id)
{
	struct user *user = find_or_make(id);

	if (user != NULL)
		user->sockets++;
	return user;
}

struct user *user_take_connection(uid_t id)
{
	struct user *user = find_or_make(id);

	if (user != NULL)
		user->connections++;
	return user;
}

void user_drop_socket(struct user *user)
{
	user->sockets--;
	forget_if_gone(user);
}

void user_drop_connection(struct user *user)
{
	user->connections--;
	forget_if_gone(user);
}

bool user_may_open(uid_t id)
{
	const struct user *user = find(id);

	return user == NULL || user->sockets < user_limits.sockets;
}

bool user_may_connect(uid_t id)
{
	const struct user *user = find(id);

	return user == NULL || user->connections < user_limits.connections;
}

bool user_is_full(const struct user *user)
{
	return all_full || user->full;
}

bool users_refuse(uint16_t port)
{
	const struct sctp_socket *s;

	if (!any_full)
		return all_full;
	for (s = sockets_first(); s != NULL && !all_full; s = s->next)
		if (s->port == port && s->user->full)
			return true;
	return all_full;
}

/* Bytes queued for and by this socket, those its client has not read yet among them. */
static uint64_t queued(const struct sctp_socket *s)
{
	const struct waiting *waiting;
	uint64_t bytes = stack_queued(s->so) + s->unsent_length;
	int unread = 0;

	if (ioctl(s->watch.fd, SIOCOUTQ, &unread) == 0)
		bytes += (uint64_t)unread;
	for (waiting = s->waiting; waiting != NULL; waiting = waiting->next)
		bytes += stack_queued(waiting->so);
	return bytes;
}

static void measure(void)
{
	struct mallinfo2 heap = mallinfo2();
	const struct sctp_socket *s;
	struct user *user;
	bool relieved = false, was_full = all_full;

	traffic = 0;
	measured_ms = loop_now_ms();
	memory = heap.uordblks + heap.hblkhd;
	all_full = memory > user_limits.memory;
	relieved = was_full && !all_full;
	for (user = first; user != NULL; user = user->next)
		user->queued = 0;
	for (s = sockets_first(); s != NULL; s = s->next)
		s->user->queued += queued(s);
	any_full = false;
	for (user = first; user != NULL; user = user->next) {
		was_full = user->full;
		user->full = user->queued > user_limits.queued;
		relieved |= was_full && !user->full;
		any_full |= user->full;
	}
	if (relieved)
		sockets_unblock_all();
}

void users_note_traffic(uint64_t bytes)
{
	traffic += bytes;
	if (traffic >= STEP)
		measure();
}

int users_run(uint64_t now_ms)
{
	if (!any_full && !all_full)
		return -1;
	if (now_ms - measured_ms >= AGAIN_MS)
		measure();
	return AGAIN_MS;
}

struct user *users_first(void)
{
	return first;
}

uint64_t users_memory(void)
{
	return memory;
}
