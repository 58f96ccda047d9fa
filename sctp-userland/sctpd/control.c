#include "control.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calls.h"
#include "closer.h"
#include "lifecycle.h"
#include "limits.h"
#include "loop.h"

#define CONTROL_BUFFER (1024 * 1024)
#define PAUSE_MS 10

struct connection {
	struct watch watch; /* first */
	struct ucred client;
	struct connection *next_turn;
};
static struct connection *turns; /* those that wait for one */

#define DATA_MAX (sizeof(struct inbound) + MESSAGE_MAX) /* what a reader gives back, or takes */

static char incoming[sizeof(struct request) + ADDRESSES_MAX + DATA_MAX + 1];
static char outgoing[ADDRESSES_MAX + DATA_MAX];
static int count, spare = -1;
static gid_t allowed_group = (gid_t)-1;
static uid_t own_user; /* that started it: nobody else is served because root's sctpd takes on his name */
static bool everyone_allowed;

static void ready_listener(struct watch *watch, uint32_t events);
static struct watch listener = { -1, EPOLLIN, ready_listener };

/* Its requests lie there unread, and what they bring along. */
static void turn_away(int fd)
{
	shutdown(fd, SHUT_RDWR);
	close_elsewhere(fd);
}

static void drop(struct connection *connection)
{
	loop_remove(&connection->watch);
	turn_away(connection->watch.fd);
	free(connection);
	count--;
	sockets_doubt_telling();
}

static bool send_reply(int fd, const struct call *call)
{
	union descriptor_room room;
	size_t length = call->reply.address_length + call->reply.data_length;
	struct iovec vector[2] = { { (void *)(uintptr_t)&call->reply, sizeof(call->reply) }, { call->result, length } };
	struct msghdr message = { .msg_iov = vector, .msg_iovlen = 2 };

	if (call->descriptor >= 0)
		put_descriptor(&message, &room, call->descriptor);
	return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

/* Answer one request about this socket. Return false when the connection must be dropped. */
static bool serve(struct connection *connection, size_t length, int passed, struct sctp_socket *s)
{
	struct request request;
	struct call call = { .request = &request, .caller = &connection->client, .passed = passed,
			     .descriptor = -1 };
	bool sent;

	memcpy(&request, incoming, sizeof(request));
	if (request.version != PROTOCOL_VERSION || request.address_length > ADDRESSES_MAX ||
	    request.data_length > DATA_MAX ||
	    length != sizeof(request) + request.address_length + request.data_length)
		return false;
	if (request.operation == OP_TURN) {
		connection->next_turn = turns;
		turns = connection;
		return true;
	}
	call.address = incoming + sizeof(request);
	call.data = call.address + request.address_length;
	call.result = outgoing;
	call_run(&call, s);
	sent = send_reply(connection->watch.fd, &call);
	if (call.descriptor >= 0)
		close(call.descriptor);
	return sent;
}

/* The next request; *passed: the descriptor that came along, -1: none. Return its length, -1 and errno, or 0: the end, or more than it may bring. */
static ssize_t receive(int fd, int *passed)
{
	static union passed_room room;
	struct iovec vector = { incoming, sizeof(incoming) };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1, .msg_control = &room,
				  .msg_controllen = sizeof(room) };
	ssize_t length = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	*passed = -1;
	return length >= 0 && close_passed(&message, passed) ? 0 : length; /* an empty message may bring some, too */
}

/* One request a turn: a client waits for the reply before it sends the next. */
static void ready(struct watch *watch, uint32_t)
{
	struct connection *connection = (struct connection *)watch;
	int passed;
	ssize_t length = receive(watch->fd, &passed);
	struct sctp_socket *s = passed >= 0 ? socket_of(passed) : NULL;
	bool served;

	if (length < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	served = length >= (ssize_t)sizeof(struct request) && serve(connection, (size_t)length, passed, s);
	if (s != NULL)
		close(passed); /* of a pair of sctpd's own: there is nothing to wait for */
	else if (passed >= 0)
		close_elsewhere(passed);
	if (!served)
		drop(connection);
}

bool control_wants_turn(void)
{
	return turns != NULL;
}

void control_had_turn(void)
{
	const struct call done = { .descriptor = -1 };
	struct connection *connection;

	while ((connection = turns) != NULL) {
		turns = connection->next_turn;
		if (!send_reply(connection->watch.fd, &done))
			drop(connection);
	}
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
	return everyone_allowed || peer->uid == 0 || peer->uid == own_user ||
	       (allowed_group != (gid_t)-1 && in_group(fd, peer));
}

static struct ucred peer_of(int fd)
{
	struct ucred peer = { .uid = (uid_t)-1 };
	socklen_t length = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0)
		peer.uid = (uid_t)-1;
	return peer;
}

/* Why this one isn't served: an errno, 0: it is. */
static int refusal(int fd, const struct ucred *peer)
{
	static uid_t told = (uid_t)-1;

	if (may_use(fd, peer))
		return limits_refuse(LIMIT_CONNECTIONS, count >= limits.connections) ? EUSERS :
		       limits_refuse(LIMIT_DESCRIPTORS, !loop_keeps_descriptors(fd)) ? EMFILE : 0;
	if (peer->uid != told)
		log_line("user %u (process %d) is refused: only root, this process's user and those of --group are served", peer->uid,
			 (int)peer->pid);
	told = peer->uid;
	return EACCES;
}

bool control_serve(int fd)
{
	int size = CONTROL_BUFFER;
	struct ucred peer = peer_of(fd);
	const struct reply why = { .result = NOT_SERVED, .error = refusal(fd, &peer) };
	struct connection *connection = why.error != 0 ? NULL : calloc(1, sizeof(*connection));

	if (connection == NULL) {
		send(fd, &why, sizeof(why), MSG_DONTWAIT | MSG_NOSIGNAL);
		turn_away(fd);
		return false;
	}
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	*connection = (struct connection){ { fd, EPOLLIN, ready }, peer };
	count++;
	if (loop_add(&connection->watch) == 0)
		return true;
	drop(connection);
	return false;
}

/* Without a descriptor a newcomer can't even be turned away: one is kept for that. */
static void keep_spare(void)
{
	if (spare < 0)
		spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static uint64_t paused_ms;

static void pause_listener(void)
{
	paused_ms = loop_now_ms();
	loop_change(&listener, 0);
}

static void ready_listener(struct watch *watch, uint32_t)
{
	int fd;

	if (closer_is_behind()) {
		pause_listener(); /* connections are turned away no faster than they are closed */
		return;
	}
	fd = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0 && (errno == EMFILE || errno == ENFILE) && spare >= 0) {
		close(spare);
		spare = -1;
		fd = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	}
	if (fd >= 0)
		control_serve(fd);
	keep_spare();
	if (fd < 0 && spare < 0)
		pause_listener(); /* until what was turned away is closed */
}

/* Return 0 or -errno. */
static int listen_at(const struct sockaddr_un *address, socklen_t length)
{
	listener.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (listener.fd < 0 || bind(listener.fd, (const struct sockaddr *)address, length) < 0 || listen(listener.fd, 128) < 0) {
		int error = -errno;

		if (listener.fd >= 0)
			close(listener.fd);
		return error;
	}
	return loop_add(&listener);
}

/* Whether an sctpd lives there. It isn't asked, which would count its idle time anew: a socket of another type is refused in another way than
 * one whose sctpd has ended. */
static bool lives_at(const struct sockaddr_un *address, socklen_t length)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool lives = fd >= 0 && connect(fd, (const struct sockaddr *)address, length) < 0 && errno == EPROTOTYPE;

	if (fd >= 0)
		close(fd);
	return lives;
}

int control_listen(gid_t group, bool everyone)
{
	struct sockaddr_un address;
	int error;

	own_user = geteuid();
	allowed_group = group;
	everyone_allowed = everyone;
	keep_spare();
	error = listen_at(&address, abstract_name(&address, CONTROL_NAME));
	if (error == 0 && lives_at(&address, service_name(&address))) {
		control_end();
		error = -EADDRINUSE;
	}
	return error;
}

/* Between looking and listening nobody else may do so. The lock belongs to the folder's owner, whose sctpd may come after root's. */
static int lock_folder(void)
{
	struct stat folder;
	int fd;

	mkdir(SERVICE_FOLDER, 0755);
	fd = open(SERVICE_FOLDER "/lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || flock(fd, LOCK_EX) < 0)
		return -1;
	if (stat(SERVICE_FOLDER, &folder) < 0 || fchown(fd, folder.st_uid, folder.st_gid) < 0)
		errno = 0; /* not allowed: it has this owner already */
	return fd;
}

int control_listen_in_folder(void)
{
	const mode_t mask = umask(0); /* all may connect; control_serve() decides whom it serves */
	struct sockaddr_un address;
	const socklen_t length = service_name(&address);
	const int lock = length > 0 ? lock_folder() : -1;
	int error = lock < 0 ? -ECONNREFUSED : lives_at(&address, length) ? -EADDRINUSE : 0;

	if (error == 0) {
		unlink(address.sun_path); /* that of one which has ended */
		error = listen_at(&address, length);
	}
	if (lock >= 0)
		close(lock);
	umask(mask);
	return error;
}

int control_next_ms(void)
{
	if (listener.events == 0 && loop_now_ms() - paused_ms >= PAUSE_MS)
		loop_change(&listener, EPOLLIN);
	return listener.events == 0 ? PAUSE_MS : -1;
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
