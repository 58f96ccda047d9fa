#define _GNU_SOURCE
#include "users.h"

#include <stdlib.h>

#define CONNECTIONS_MAX 4096 /* of all users */

struct user_limits user_limits = {
	.user = { .sockets = 16384, .bytes = 64 * 1024 * 1024 },
	.client = { .sockets = 8192, .bytes = 32 * 1024 * 1024 },
	.connections = 1024,
	.memory = 512 * 1024 * 1024,
};

static struct user *users;
static struct client *clients;
static int connections;

struct user *users_first(void)
{
	return users;
}

struct client *clients_first(void)
{
	return clients;
}

static struct user *user_of(uid_t id)
{
	struct user *user = users;

	while (user != NULL && user->id != id)
		user = user->next;
	if (user != NULL || (user = calloc(1, sizeof(*user))) == NULL)
		return user;
	user->id = id;
	user->next = users;
	users = user;
	return user;
}

static void forget_user_if_gone(struct user *user)
{
	struct user **link;

	const struct client *client;

	for (client = clients; client != NULL && client->user != user;)
		client = client->next;
	if (client != NULL || user->connections > 0)
		return;
	for (link = &users; *link != user;)
		link = &(*link)->next;
	*link = user->next;
	free(user);
}

static void forget_if_gone(struct client *client)
{
	struct client **link;
	struct user *user = client->user;

	if (client->has.sockets > 0 || client->connections > 0 || client->closed > 0)
		return;
	for (link = &clients; *link != client;)
		link = &(*link)->next;
	*link = client->next;
	free(client);
	forget_user_if_gone(user);
}

struct client *client_connect(uid_t id, pid_t process)
{
	struct user *user = user_of(id);
	struct client *client = clients;

	/* Nobody may have more than are left then: so some are left, whoever has taken all he could. */
	if (user == NULL || user->connections >= user_limits.connections || user->connections >= CONNECTIONS_MAX - connections) {
		if (user != NULL)
			forget_user_if_gone(user);
		return NULL;
	}
	while (client != NULL && (client->process != process || client->user != user))
		client = client->next;
	if (client == NULL) {
		client = calloc(1, sizeof(*client));
		if (client == NULL) {
			forget_user_if_gone(user);
			return NULL;
		}
		*client = (struct client){ .next = clients, .user = user, .process = process };
		clients = client;
	}
	client->connections++;
	user->connections++;
	connections++;
	return client;
}

void client_disconnect(struct client *client)
{
	client->connections--;
	client->user->connections--;
	connections--;
	forget_if_gone(client);
}

bool client_may_open(const struct client *client)
{
	return client->has.sockets < user_limits.client.sockets && client->user->has.sockets < user_limits.user.sockets;
}

void client_open(struct client *client)
{
	client->has.sockets++;
	client->user->has.sockets++;
}

void client_close(struct client *client)
{
	client->has.sockets--;
	client->user->has.sockets--;
	forget_if_gone(client);
}

void client_keeps_closed(struct client *client, const struct stack_use *use)
{
	client->closed++;
	client->closed_use.queued += use->queued;
	client->closed_use.associations += use->associations;
}

void client_lost_closed(struct client *client, const struct stack_use *use)
{
	client->closed--;
	client->closed_use.queued -= use->queued;
	client->closed_use.associations -= use->associations;
	forget_if_gone(client);
}

bool client_is_full(const struct client *client)
{
	return client->has.full || client->user->has.full;
}
