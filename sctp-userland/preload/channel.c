#include "channel.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "real.h"

#define FIRST_DESCRIPTOR 512 /* out of the way of the program's own, where the limit allows */
#define BUFFER (1024 * 1024)
#define NOTED 65536 /* descriptors */
#define ERRNO_MAX 4095
#define BITS (8 * (int)sizeof(unsigned long))
#define CONNECT_S 3 /* far longer than sctpd needs to accept; a stranger who has its name may never do so */
#define TURN_MS 20 /* far longer than a turn takes; no program stands still for longer when sctpd has no processor */

/* One connection per thread. Anything that the program did to the descriptor (closed all, forked) shows in inode or process. */
static __thread struct {
	int fd;
	ino_t inode;
	pid_t process;
	bool in_use; /* a signal handler must take another */
	bool owes_turn; /* OP_TURN has not been answered yet */
	uint32_t number; /* of this connection, in this process */
} own = { .fd = -1 };

static pthread_key_t thread_ends;

/* Which descriptors are connections, of whatever thread: a bit each, as a forked child must not wait for a lock. */
static unsigned long noted[NOTED / BITS];

static bool trusted(int fd)
{
	struct ucred peer;
	socklen_t length = sizeof(peer);

	if (real()->getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0)
		return false;
	return is_believed(peer.uid);
}

uint32_t channel_number(void)
{
	return own.number;
}

static bool is_connection(int fd)
{
	struct sockaddr_un expected, found = { 0 };
	socklen_t length = abstract_name(&expected, CONTROL_NAME), got = sizeof(found);

	return real()->getpeername(fd, (struct sockaddr *)&found, &got) == 0 &&
	       ((got == length && memcmp(&found, &expected, length) == 0) ||
		strncmp(found.sun_path, SERVICE_NAME_PREFIX, strlen(SERVICE_NAME_PREFIX)) == 0);
}

static void close_connection(int fd)
{
	if (fd < NOTED)
		__atomic_and_fetch(&noted[fd / BITS], ~(1UL << fd % BITS), __ATOMIC_RELAXED);
	close(fd);
}

/* Return a descriptor, or -1 and errno: ECONNREFUSED if no sctpd that is believed listens there. */
static int connect_to(const struct sockaddr_un *address, socklen_t length)
{
	const struct timeval patience = { .tv_sec = CONNECT_S }, for_ever = { 0 };
	int fd = real()->socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), result;

	if (fd < 0)
		return -1;
	real()->setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)); /* that of connect(), too */
	do
		result = real()->connect(fd, (const struct sockaddr *)address, length);
	while (result < 0 && errno == EINTR);
	if (result < 0 || !trusted(fd)) {
		close(fd);
		return fail(ECONNREFUSED);
	}
	real()->setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &for_ever, sizeof(for_ever));
	return fd;
}

/* First to the name that no stranger can take: it is there only where one has the other. */
static int open_connection(void)
{
	struct sockaddr_un address;
	socklen_t length = service_name(&address);
	int fd = length > 0 ? connect_to(&address, length) : fail(ECONNREFUSED), size = BUFFER, moved;

	if (fd < 0 && errno == ECONNREFUSED) {
		length = abstract_name(&address, CONTROL_NAME);
		fd = connect_to(&address, length);
	}
	if (fd < 0)
		return -1;
	real()->setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	moved = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR);
	if (moved >= 0) {
		close(fd);
		fd = moved;
	}
	if (fd < NOTED)
		__atomic_or_fetch(&noted[fd / BITS], 1UL << fd % BITS, __ATOMIC_RELAXED);
	return fd;
}

/* In a child: close the copies of what the parent's threads use. That of the thread that forked stays until the child has its own: a
 * program that sctp-run started keeps its sctpd. */
static void forked(void)
{
	int saved = errno, word, fd;

	for (word = 0; word < NOTED / BITS; word++)
		for (fd = word * BITS; noted[word] != 0 && fd < (word + 1) * BITS; fd++)
			if (noted[word] & 1UL << fd % BITS && fd != own.fd && is_connection(fd))
				close_connection(fd);
	errno = saved;
}

static bool still_ours(void)
{
	struct stat status;

	return own.fd >= 0 && fstat(own.fd, &status) == 0 && S_ISSOCK(status.st_mode) && status.st_ino == own.inode;
}

static int thread_connection(void)
{
	static uint32_t last;
	struct stat status;

	if (still_ours()) {
		if (own.process == getpid())
			return own.fd;
		close_connection(own.fd); /* the parent's */
	}
	own.fd = open_connection();
	if (own.fd < 0)
		return -1;
	own.owes_turn = false;
	own.number = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
	own.process = getpid();
	own.inode = fstat(own.fd, &status) == 0 ? status.st_ino : 0;
	pthread_setspecific(thread_ends, &own);
	return own.fd;
}

static void close_own(void *)
{
	if (still_ours())
		close_connection(own.fd);
	own.fd = -1;
}

/* From the start: a program that sctp-run started keeps its sctpd, even when its first socket comes late. */
__attribute__((constructor)) static void start(void)
{
	int saved = errno;

	pthread_key_create(&thread_ends, close_own);
	pthread_atfork(NULL, NULL, forked);
	thread_connection();
	errno = saved;
}

static ssize_t send_request(int connection, int fd, struct exchange *exchange)
{
	union descriptor_room room;
	struct iovec vector[2 + IOV_MAX] = { { &exchange->request, sizeof(exchange->request) },
					     { (void *)(uintptr_t)exchange->address, exchange->address_length } };
	struct msghdr message = { .msg_iov = vector, .msg_iovlen = 3 };
	ssize_t sent;

	if (exchange->parts == NULL) {
		vector[2] = (struct iovec){ (void *)(uintptr_t)exchange->data, exchange->data_length };
	} else {
		if (exchange->part_count > IOV_MAX - 2)
			return fail(EMSGSIZE);
		memcpy(vector + 2, exchange->parts, exchange->part_count * sizeof(*vector));
		message.msg_iovlen = 2 + exchange->part_count;
	}
	if (fd >= 0)
		put_descriptor(&message, &room, fd);
	do
		sent = real()->sendmsg(connection, &message, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	return sent;
}

int channel_reserve_descriptor(struct exchange *exchange)
{
	int fd = exchange->reserved == 0 ? eventfd(0, EFD_CLOEXEC) : 0;

	if (fd < 0)
		return -1;
	if (exchange->reserved == 0)
		exchange->reserved = fd + 1;
	return 0;
}

void channel_free_reserved(struct exchange *exchange)
{
	if (exchange->reserved > 0)
		close(exchange->reserved - 1);
	exchange->reserved = 0;
}

static bool brings_descriptor(uint16_t operation)
{
	return operation == OP_SOCKET || operation == OP_ACCEPT || operation == OP_PEELOFF || operation == OP_STATES ||
	       operation == OP_SHIM_ACCEPT;
}

/* How many packed addresses these bytes are; -1: they are none. */
static int addresses_in(const char *bytes, size_t length)
{
	size_t at, size;
	sa_family_t family;
	int count = 0;

	for (at = 0; at + sizeof(family) <= length; at += size, count++) {
		memcpy(&family, bytes + at, sizeof(family));
		size = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
		if (family != AF_INET && family != AF_INET6)
			return -1;
	}
	return at == length ? count : -1;
}

/* Why this connection was turned away, if that was said; else ECONNRESET. */
static int reason(int connection)
{
	struct reply said = { 0 };
	ssize_t got = real()->recvfrom(connection, &said, sizeof(said), MSG_DONTWAIT, NULL, NULL);

	if (got < 0 && errno == ECONNRESET) /* that a request lay unread is told before what was said */
		got = real()->recvfrom(connection, &said, sizeof(said), MSG_DONTWAIT, NULL, NULL);
	return got == sizeof(said) && said.error != 0 ? said.error : ECONNRESET;
}

/* Whether a reply holds what it says, in the room that there is, and nothing that a program may take for more than it asked for: sctpd reads what
 * strangers send, and one that was taken over must not take over its clients. */
static bool is_sound(const struct exchange *exchange, const struct msghdr *message, size_t length)
{
	const struct reply *reply = &exchange->reply;
	const uint16_t operation = exchange->request.operation;
	int addresses;

	if (message->msg_flags & MSG_TRUNC || length > exchange->result_room || reply->address_length > length ||
	    reply->data_length != length - reply->address_length || reply->error < 0 || reply->error > ERRNO_MAX)
		return false;
	if (reply->error != 0)
		return true;
	switch (operation) {
	case OP_SEND:
		return reply->result >= 0 && (size_t)reply->result <= exchange->data_length;
	case OP_FETCH:
		return reply->address_length == 0 && length >= sizeof(struct inbound);
	case OP_GETSOCKNAME:
	case OP_GETPEERNAME:
		addresses = addresses_in(exchange->result, reply->address_length);
		return reply->data_length == 0 && addresses >= 0 && (reply->result == addresses || exchange->request.argument[0] == 0);
	default:
		return !brings_descriptor(operation) || exchange->descriptor >= 0;
	}
}

/* Return -1 and errno: that of a dead connection, or EMFILE when another thread was quick enough to take the place of the descriptor. */
static int receive_reply(int connection, struct exchange *exchange)
{
	struct pollfd answer = { connection, POLLIN, 0 };
	union descriptor_room room;
	struct iovec vector[2] = { { &exchange->reply, sizeof(exchange->reply) },
				   { exchange->result, exchange->result_room } };
	struct msghdr message = { .msg_iov = vector, .msg_iovlen = 2, .msg_control = &room,
				  .msg_controllen = CMSG_LEN(sizeof(int)) };
	ssize_t got;

	if (exchange->reserved > 0)
		while (poll(&answer, 1, -1) < 0 && errno == EINTR)
			;
	channel_free_reserved(exchange);
	do
		got = real()->recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got < (ssize_t)sizeof(exchange->reply)) {
		errno = got < 0 ? reason(connection) : ECONNRESET;
		return -1;
	}
	if (message.msg_flags & MSG_CTRUNC)
		return fail(EMFILE);
	exchange->descriptor = descriptor_of(&message);
	if (is_sound(exchange, &message, (size_t)got - sizeof(exchange->reply)))
		return 0;
	if (exchange->descriptor >= 0)
		close(exchange->descriptor);
	exchange->descriptor = -1;
	return fail(ECONNRESET);
}

/* Whether the answer to OP_TURN was there within wait_ms (-1: as long as it takes, whatever signals come), or none is owed. */
static bool had_turn(int connection, int wait_ms)
{
	struct pollfd answer = { connection, POLLIN, 0 };
	struct reply said;
	ssize_t got;

	if (!own.owes_turn)
		return true;
	if (wait_ms >= 0 && poll(&answer, 1, wait_ms) <= 0)
		return false;
	do
		got = real()->recvfrom(connection, &said, sizeof(said), 0, NULL, NULL);
	while (got < 0 && errno == EINTR);
	own.owes_turn = false;
	return got == sizeof(said) && said.error == 0;
}

/* One request and its reply; with a connection found dead, once more with a new one. */
static int exchange_on(int connection, int fd, struct exchange *exchange, bool *dead)
{
	*dead = false;
	if (send_request(connection, fd, exchange) < 0) {
		*dead = errno != EMSGSIZE && errno != EBADF && errno != EFAULT;
		if (*dead)
			errno = reason(connection);
		return -1;
	}
	if (receive_reply(connection, exchange) < 0)
		return -1;
	if (exchange->reply.error != 0) {
		/* This library asks about SCTP sockets only: one that is unknown was another sctpd's, which is gone. */
		errno = exchange->reply.error == EBADF && fd >= 0 ? ECONNRESET : exchange->reply.error;
		return -1;
	}
	return 0;
}

int channel_call(int fd, struct exchange *exchange)
{
	bool nested = own.in_use, dead = false, ends;
	int attempt, connection, error, result = -1, saved = errno;

	exchange->request.version = PROTOCOL_VERSION;
	exchange->request.address_length = (uint32_t)exchange->address_length;
	exchange->request.data_length = (uint32_t)exchange->data_length;
	exchange->reply = (struct reply){ .result = -1 };
	exchange->descriptor = -1;
	if (brings_descriptor(exchange->request.operation) && channel_reserve_descriptor(exchange) < 0)
		return -1;
	own.in_use = true;
	for (attempt = 0; attempt < 2; attempt++) {
		connection = nested ? open_connection() : thread_connection();
		if (connection < 0) {
			if (errno != EMFILE && errno != ENFILE)
				errno = exchange->request.operation == OP_SOCKET ? EPROTONOSUPPORT : ECONNRESET;
			break;
		}
		if (!nested)
			had_turn(connection, -1);
		result = exchange_on(connection, fd, exchange, &dead);
		error = errno;
		ends = dead || (result < 0 && exchange->reply.result == NOT_SERVED);
		if (nested || ends)
			close_connection(connection);
		if (ends && !nested)
			own.fd = -1;
		errno = error;
		if (!dead)
			break;
	}
	own.in_use = nested;
	channel_free_reserved(exchange);
	if (result == 0)
		errno = saved;
	return result;
}

static bool has_sent;

void channel_note_sent(void)
{
	if (!__atomic_load_n(&has_sent, __ATOMIC_RELAXED))
		__atomic_store_n(&has_sent, true, __ATOMIC_RELAXED);
}

bool channel_turn(bool if_sent)
{
	struct exchange exchange = { .request = { .version = PROTOCOL_VERSION, .operation = OP_TURN } };
	int saved = errno, connection;
	bool had = false;

	if (!own.in_use && (!if_sent || __atomic_exchange_n(&has_sent, false, __ATOMIC_RELAXED))) {
		own.in_use = true;
		connection = thread_connection();
		if (connection >= 0 && had_turn(connection, 0) && send_request(connection, -1, &exchange) >= 0) {
			own.owes_turn = true;
			had = had_turn(connection, TURN_MS);
		}
		own.in_use = false;
		if (own.owes_turn && if_sent)
			channel_note_sent(); /* the next recv() asks again */
	}
	errno = saved;
	return had;
}
