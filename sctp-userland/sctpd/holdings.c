/* How much each user and each process holds, measured now and then, and who holds too much. */
#define _GNU_SOURCE
#include <linux/sockios.h>
#include <malloc.h>
#include <sys/ioctl.h>
#include <time.h>

#include "refused.h"
#include "sockets.h"
#include "users.h"

#define STEP (1024 * 1024) /* bytes of traffic after which what is held is measured again */
#define LITTLE (1024 * 1024)
#define AGAIN_MS 50        /* ... and while someone is full */
#define PAUSE 10           /* a measurement that took so long isn't made again before as many times that have passed */

static uint64_t traffic, measured_us, took_us;
static bool any_full;

bool users_refuse(const struct sockaddr *local, bool data, bool begins)
{
	return any_full && refused_at(local, data, begins);
}

/* Add what this socket holds, with all that its client has not read yet. */
static void add_held(const struct sctp_socket *s, struct holding *to)
{
	const struct waiting *waiting;
	struct stack_use use = { .queued = s->unsent_length + s->kept_bytes };
	int unread = 0;

	stack_measure(s->so, IS_ONE_TO_ONE(s), s->out_streams, &use);
	for (waiting = s->waiting; waiting != NULL; waiting = waiting->next)
		stack_measure(waiting->so, true, s->out_streams, &use);
	if (ioctl(s->watch.fd, SIOCOUTQ, &unread) == 0)
		use.queued += (uint64_t)unread;
	to->queued += use.queued;
	to->associations += use.associations;
}

static uint64_t sum(const struct holding *has)
{
	return has->queued + has->associations;
}

/* Whether this one may go on after having been full. */
static bool judge(struct holding *has, const struct share_limits *limits, uint64_t most)
{
	bool was_full = has->full, too_much = sum(has) >= most;

	has->full = too_much || has->queued > limits->bytes;
	has->no_more = too_much || has->associations + ASSOCIATION_COST > limits->bytes;
	any_full |= has->full || has->no_more;
	return was_full && !has->full;
}

/* When the memory for all is used up, those are refused who hold its part for each user, or more; should none hold as much (memory goes
 * on other things as well), those who hold the average or more. Never those who hold little. */
static uint64_t fair_share(void)
{
	struct mallinfo2 heap = mallinfo2();
	uint64_t number = 0, all = 0;
	const struct user *user;

	if (heap.uordblks + heap.hblkhd <= user_limits.memory)
		return UINT64_MAX;
	for (user = users_first(); user != NULL; user = user->next, number++)
		all += sum(&user->has);
	if (number == 0)
		return UINT64_MAX;
	all = (all < user_limits.memory ? all : user_limits.memory) / number;
	return all > LITTLE ? all : LITTLE;
}

static uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* after_reaping: take note first of what has ended. */
static void measure(bool after_reaping)
{
	const struct sctp_socket *s;
	struct client *client;
	struct user *user;
	uint64_t most;
	bool relieved = false;

	traffic = 0;
	measured_us = now_us();
	if (after_reaping)
		sockets_reap(0);
	for (user = users_first(); user != NULL; user = user->next)
		user->has.queued = user->has.associations = 0;
	for (client = clients_first(); client != NULL; client = client->next) {
		client->has.queued = client->closed_use.queued;
		client->has.associations = client->closed_use.associations;
	}
	for (s = sockets_first(); s != NULL; s = s->next)
		add_held(s, &s->client->has);
	for (client = clients_first(); client != NULL; client = client->next) {
		client->user->has.queued += client->has.queued;
		client->user->has.associations += client->has.associations;
	}
	any_full = false;
	most = fair_share();
	for (user = users_first(); user != NULL; user = user->next)
		relieved |= judge(&user->has, &user_limits.user, most);
	for (client = clients_first(); client != NULL; client = client->next)
		relieved |= judge(&client->has, &user_limits.client, UINT64_MAX);
	if (any_full) {
		refused_forget();
		for (s = sockets_first(); s != NULL; s = s->next)
			refused_add(s, client_is_full(s->client), s->client->has.no_more || s->client->user->has.no_more);
		refused_ready();
	}
	if (relieved)
		sockets_unblock_all();
	took_us = now_us() - measured_us;
}

static bool measured_just_now(void)
{
	return now_us() - measured_us < PAUSE * took_us;
}

void users_note_traffic(uint64_t bytes)
{
	traffic += bytes;
	if (traffic >= STEP && !measured_just_now())
		measure(false);
}

int users_run(void)
{
	if (!any_full)
		return -1;
	if (now_us() - measured_us >= AGAIN_MS * 1000 && !measured_just_now())
		measure(false);
	return AGAIN_MS;
}

static bool has_room_queued(const struct client *client, uint64_t bytes)
{
	return client->has.queued + bytes <= user_limits.client.bytes && client->user->has.queued + bytes <= user_limits.user.bytes;
}

bool client_may_queue(const struct client *client, uint64_t bytes)
{
	if (has_room_queued(client, bytes))
		return true;
	if (measured_just_now())
		return false;
	measure(false);
	return has_room_queued(client, bytes);
}

void client_queues(struct client *client, uint64_t bytes)
{
	client->has.queued += bytes;
	client->user->has.queued += bytes;
	users_note_traffic(bytes);
}

static bool has_room(const struct client *client, uint64_t bytes)
{
	const struct user *user = client->user;

	return !client->has.no_more && !user->has.no_more && client->has.associations + bytes <= user_limits.client.bytes &&
	       user->has.associations + bytes <= user_limits.user.bytes;
}

bool client_may_begin(const struct client *client, uint64_t bytes)
{
	if (has_room(client, bytes))
		return true;
	if (measured_just_now())
		return false;
	measure(true);
	return has_room(client, bytes);
}

void client_begins(struct client *client, uint64_t bytes)
{
	client->has.associations += bytes;
	client->user->has.associations += bytes;
	users_note_traffic(bytes);
}

void users_note_begun(const struct sockaddr *local, struct stack_begun begun)
{
	const struct sctp_socket *s, *at = NULL;

	for (s = sockets_first(); s != NULL && (at == NULL || !at->listening); s = s->next)
		if (socket_is_at(s, local))
			at = s;
	if (at != NULL)
		client_begins(at->client, begun.associations * association_cost(at->out_streams, at->in_streams, 0) +
						  begun.more_paths * PATH_COST);
}
