#define _GNU_SOURCE
#include "control.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "calls.h"
#include "loop.h"
#include "passed.h"
#include "tasks.h"
#include "users.h"

#define CONTROL_BUFFER (1024 * 1024)
#define KEPT_FREE 8 /* descriptors no connection may take: each call brings one along, and makes up to two */

struct connection {
	struct watch watch; /* first */
	struct client *client;
};

static char incoming[sizeof(struct request) + ADDRESSES_MAX + MESSAGE_MAX + 1];
static char outgoing[sizeof(struct reply) + ADDRESSES_MAX + 65536];
static int count;
static gid_t allowed_group = (gid_t)-1;
static bool everyone_allowed;

static void ready_listener(struct watch *watch, uint32_t events);
static struct watch listener = { -1, EPOLLIN, ready_listener };

static void drop(struct connection *connection)
{
	loop_remove(&connection->watch);
	passed_end(connection->client->user->id, connection->watch.fd);
	client_disconnect(connection->client);
	free(connection);
	count--;
	sockets_doubt_telling();
}

static bool send_reply(int fd, const struct call *call)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	size_t length = call->reply.address_length + call->reply.data_length;
	struct iovec vector[2] = { { (void *)(uintptr_t)&call->reply, sizeof(call->reply) }, { call->result, length } };
	struct msghdr message = { .msg_iov = vector, .msg_iovlen = 2 };

	if (call->descriptor >= 0) {
		struct cmsghdr *item;

		message.msg_control = control;
		message.msg_controllen = sizeof(control);
		item = CMSG_FIRSTHDR(&message);
		item->cmsg_level = SOL_SOCKET;
		item->cmsg_type = SCM_RIGHTS;
		item->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(item), &call->descriptor, sizeof(int));
	}
	return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

/* Answer one request about this socket. Return false when the connection must be dropped. */
static bool serve(struct connection *connection, size_t length, int passed, struct sctp_socket *s)
{
	struct request request;
	struct call call = { .request = &request, .caller = connection->client, .passed = passed,
			     .descriptor = -1 };
	bool sent;

	memcpy(&request, incoming, sizeof(request));
	if (request.version != PROTOCOL_VERSION || request.address_length > ADDRESSES_MAX ||
	    request.data_length > MESSAGE_MAX ||
	    length != sizeof(request) + request.address_length + request.data_length)
		return false;
	call.address = incoming + sizeof(request);
	call.data = call.address + request.address_length;
	call.result = outgoing;
	call.room = sizeof(outgoing);
	call_run(&call, s);
	sent = send_reply(connection->watch.fd, &call);
	if (call.descriptor >= 0)
		close(call.descriptor);
	return sent;
}

/* Take the request that was looked at, and answer it. A socket that isn't of ours may be another sctpd's, which is gone. */
static bool take_and_serve(struct connection *connection, size_t length, int passed, struct sctp_socket *s)
{
	if (length < sizeof(struct request) || length > sizeof(incoming) || (passed >= 0 && s == NULL && !passed_is_socket(passed)))
		return false;
	passed_take(connection->watch.fd);
	return serve(connection, length, passed, s);
}

/* One request a turn: a client waits for the reply before it sends the next. */
static void ready(struct watch *watch, uint32_t events)
{
	struct connection *connection = (struct connection *)watch;
	uid_t user = connection->client->user->id;
	struct sctp_socket *s;
	ssize_t length;
	int passed;
	bool more, served;

	(void)events;
	if (tasks_are_too_many(user)) {
		drop(connection); /* before it brings more */
		return;
	}
	length = passed_look(watch->fd, incoming, sizeof(incoming), &passed, &more);
	if (length < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	s = passed >= 0 ? socket_of(passed) : NULL;
	served = length > 0 && !more && take_and_serve(connection, (size_t)length, passed, s);
	if (s != NULL)
		close(passed); /* behind it are only messages of ours */
	else if (passed >= 0)
		passed_close(user, passed);
	passed_keep_spare();
	if (!served)
		drop(connection);
}

static bool is_among(const gid_t *groups, size_t number)
{
	for (size_t i = 0; i < number; i++)
		if (groups[i] == allowed_group)
			return true;
	return false;
}

/* By the groups the process has, as for a file: asking the database of users here could hold everybody up. */
static bool in_group(int fd, const struct ucred *peer)
{
	static gid_t groups[NGROUPS_MAX];
	socklen_t length = sizeof(groups);

	return peer->gid == allowed_group ||
	       (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &length) == 0 && is_among(groups, length / sizeof(gid_t)));
}

static bool may_use(int fd, const struct ucred *peer)
{
	return everyone_allowed || peer->uid == 0 || peer->uid == geteuid() ||
	       (allowed_group != (gid_t)-1 && in_group(fd, peer));
}

/* The kernel gives out the lowest number, so a high one tells that few are left. */
static bool last_descriptors(int fd)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_NOFILE, &limit) == 0 && (rlim_t)fd + KEPT_FREE >= limit.rlim_cur;
}

static struct ucred peer_of(int fd)
{
	struct ucred peer = { .uid = (uid_t)-1 };
	socklen_t length = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0)
		peer.uid = (uid_t)-1;
	return peer;
}

/* Whether this user isn't served, or has passed what never ends. He is told why. */
static bool is_refused(int fd, const struct ucred *peer)
{
	static uid_t told = (uid_t)-1;
	const bool admitted = may_use(fd, peer);
	const struct reply why = { .result = -1, .error = admitted ? ETOOMANYREFS : EACCES };

	if (admitted && !tasks_are_too_many(peer->uid))
		return false;
	if (!admitted && peer->uid != told) {
		told = peer->uid;
		log_line("user %u (process %d) is refused: only root, this process's user and those of --group are served", peer->uid,
			 (int)peer->pid);
	}
	send(fd, &why, sizeof(why), MSG_DONTWAIT | MSG_NOSIGNAL);
	return true;
}

bool control_serve(int fd)
{
	int size = CONTROL_BUFFER;
	struct connection *connection;
	struct ucred peer = peer_of(fd);

	if (is_refused(fd, &peer) || last_descriptors(fd) ||
	    (connection = calloc(1, sizeof(*connection))) == NULL) {
		passed_end(peer.uid, fd); /* it may have brought some already */
		return false;
	}
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	connection->watch = (struct watch){ fd, EPOLLIN, ready };
	connection->client = client_connect(peer.uid, peer.pid);
	if (connection->client == NULL) {
		passed_end(peer.uid, fd);
		free(connection);
		return false;
	}
	count++;
	if (loop_add(&connection->watch) == 0)
		return true;
	drop(connection);
	return false;
}

static void ready_listener(struct watch *watch, uint32_t events)
{
	int fd = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)events;
	if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
		passed_give_spare();
		fd = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd >= 0)
			passed_end(peer_of(fd).uid, fd);
		fd = -1;
		passed_keep_spare();
	}
	if (fd >= 0)
		control_serve(fd);
}

int control_listen(gid_t group, bool everyone)
{
	struct sockaddr_un address;
	socklen_t length = abstract_name(&address, CONTROL_NAME);

	allowed_group = group;
	everyone_allowed = everyone;
	passed_keep_spare();
	listener.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (listener.fd < 0 || bind(listener.fd, (struct sockaddr *)&address, length) < 0 || listen(listener.fd, 128) < 0) {
		int error = -errno;

		if (listener.fd >= 0)
			close(listener.fd);
		passed_give_spare();
		return error;
	}
	return loop_add(&listener);
}

void control_end(void)
{
	loop_remove(&listener);
	close(listener.fd);
}

int control_count(void)
{
	return count;
}
