/* Receiving. A message (header and bytes) lies as one datagram in the descriptor, and one system call takes all of it, into the program's buffers and
 * behind them into a spare one: so readers in any threads and processes never share a message by accident. Bytes that came into the spare
 * one go back to sctpd, which puts them before all else that lies there. */
#include "sctp.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include "linux_headers.h"
#include <string.h>
#include <sys/mman.h>

#include "../protocol.h"
#include "channel.h"
#include "fds.h"
#include "memory.h"
#include "real.h"

#define HEADER ((ssize_t)sizeof(struct inbound))
#define SPARE (sizeof(struct inbound) + MESSAGE_MAX)

/* Each thread's, from its first receive on; a signal's handler that interrupts one gets another for the moment. */
static __thread struct {
	char *bytes;
	bool in_use;
	bool has_called; /* sctpd, which so takes back what is given */
} own;
static pthread_key_t thread_ends;

static void free_own(void *bytes)
{
	munmap(bytes, SPARE);
	own.bytes = NULL;
}

__attribute__((constructor)) static void start(void)
{
	pthread_key_create(&thread_ends, free_own);
}

/* NULL and errno: no memory. */
static char *borrow_spare(void)
{
	char *bytes;

	if (own.bytes == NULL || own.in_use) {
		bytes = mmap(NULL, SPARE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (bytes == MAP_FAILED || own.bytes != NULL)
			return bytes == MAP_FAILED ? NULL : bytes;
		own.bytes = bytes;
		pthread_setspecific(thread_ends, bytes);
	}
	own.in_use = true;
	return own.bytes;
}

static void give_up_spare(char *bytes)
{
	if (bytes == own.bytes)
		own.in_use = false;
	else if (bytes != NULL)
		munmap(bytes, SPARE);
}

static size_t used_vectors(const struct msghdr *message)
{
	return message->msg_iovlen < IOV_MAX - 2 ? message->msg_iovlen : IOV_MAX - 2;
}

static size_t room_of(const struct msghdr *message)
{
	size_t i, room = 0;

	for (i = 0; i < used_vectors(message); i++)
		room += message->msg_iov[i].iov_len;
	return room;
}

/* Append an item of ancillary data, as the kernel does: whole without its padding, or what fits and MSG_CTRUNC. */
static void put(struct msghdr *message, size_t room, int type, const void *data, size_t length)
{
	struct cmsghdr *item = (struct cmsghdr *)((char *)message->msg_control + message->msg_controllen);
	const size_t left = room - message->msg_controllen, fits = left < CMSG_LEN(length) ? left : CMSG_LEN(length);

	if (fits < CMSG_LEN(length))
		message->msg_flags |= MSG_CTRUNC;
	if (message->msg_control == NULL || fits < sizeof(*item))
		return;
	item->cmsg_level = IPPROTO_SCTP;
	item->cmsg_type = type;
	item->cmsg_len = fits;
	memcpy(CMSG_DATA(item), data, fits - sizeof(*item));
	message->msg_controllen += left < CMSG_SPACE(length) ? left : CMSG_SPACE(length);
}

static ssize_t look(int fd, struct inbound *header)
{
	struct iovec vector = { header, sizeof(*header) };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1 };

	return real()->recvmsg(fd, &message, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
}

/* The information about the message behind this one, when it lies there already. */
static void put_next_information(int fd, struct msghdr *message, size_t room)
{
	struct inbound next;
	ssize_t length = look(fd, &next);

	if (length < 0 && channel_turn(false))
		length = look(fd, &next);
	if (length >= HEADER && next.type == INBOUND_DATA) {
		struct sctp_nxtinfo information = { .nxt_sid = next.stream, .nxt_flags = next.sinfo_flags, .nxt_ppid = next.ppid,
						    .nxt_length = (uint32_t)(length - HEADER),
						    .nxt_assoc_id = (sctp_assoc_t)next.association };

		put(message, room, SCTP_NXTINFO, &information, sizeof(information));
	}
}

static void put_information(int fd, uint32_t wants, struct msghdr *message, const struct inbound *header)
{
	size_t room = message->msg_controllen;

	message->msg_controllen = 0;
	if (header->type != INBOUND_DATA)
		return;
	if (wants & STATE_WANTS_NXTINFO && message->msg_flags & MSG_EOR)
		put_next_information(fd, message, room);
	if (wants & STATE_WANTS_RCVINFO) {
		struct sctp_rcvinfo information = {
			.rcv_sid = header->stream, .rcv_ssn = header->ssn, .rcv_flags = header->sinfo_flags,
			.rcv_ppid = header->ppid, .rcv_tsn = header->tsn, .rcv_cumtsn = header->cumulative_tsn,
			.rcv_context = header->context, .rcv_assoc_id = (sctp_assoc_t)header->association,
		};

		put(message, room, SCTP_RCVINFO, &information, sizeof(information));
	}
	if (wants & STATE_WANTS_SNDRCV) {
		struct sctp_sndrcvinfo information = {
			.sinfo_stream = header->stream, .sinfo_ssn = header->ssn, .sinfo_flags = header->sinfo_flags,
			.sinfo_ppid = header->ppid, .sinfo_context = header->context, .sinfo_tsn = header->tsn,
			.sinfo_cumtsn = header->cumulative_tsn, .sinfo_assoc_id = (sctp_assoc_t)header->association,
		};

		put(message, room, SCTP_SNDRCV, &information, sizeof(information));
	}
}

static void put_from(struct msghdr *message, const struct inbound *header)
{
	socklen_t length = header->from_length <= sizeof(header->from) ? header->from_length : 0;

	if (message->msg_name != NULL)
		memcpy(message->msg_name, &header->from, length < message->msg_namelen ? length : message->msg_namelen);
	message->msg_namelen = message->msg_name != NULL ? length : 0;
}

/* Take what comes next, or look at it: header, the program's share, and in the spare buffer what it has no room for. Return the bytes it has,
 * less than a header's: the end; -1 and errno. */
static ssize_t take(int fd, struct inbound *header, const struct msghdr *message, int flags, char *spare)
{
	const size_t used = used_vectors(message);
	struct iovec vectors[used + 2];
	struct msghdr whole = { .msg_iov = vectors, .msg_iovlen = used + 1 };

	vectors[0] = (struct iovec){ header, sizeof(*header) };
	if (used > 0)
		memcpy(vectors + 1, message->msg_iov, used * sizeof(*vectors));
	if (flags & MSG_PEEK)
		flags |= MSG_TRUNC; /* tells the bytes it has, here too */
	else
		vectors[whole.msg_iovlen++] = (struct iovec){ spare, SPARE };
	return real()->recvmsg(fd, &whole, flags);
}

/* The same of what lies with sctpd. Return 0: another reader has it. */
static ssize_t fetch(int fd, struct inbound *header, const struct msghdr *message, int flags, char *spare, bool took_ask)
{
	struct exchange exchange = { .request = { .operation = OP_FETCH, .argument = { (flags & MSG_PEEK) != 0, took_ask } }, .result = spare,
				     .result_room = SPARE };
	size_t i, part, length, done = sizeof(*header);

	if (channel_call(fd, &exchange) < 0)
		return errno == EAGAIN ? 0 : -1;
	length = exchange.reply.data_length;
	memcpy(header, spare, sizeof(*header));
	for (i = 0; i < used_vectors(message) && done < length; i++, done += part) {
		part = message->msg_iov[i].iov_len < length - done ? message->msg_iov[i].iov_len : length - done;
		if (!memory_writable(message->msg_iov[i].iov_base, part))
			return fail(EFAULT);
		memcpy(message->msg_iov[i].iov_base, spare + done, part);
	}
	memmove(spare, spare + done, length - done);
	return (ssize_t)length;
}

static void give_back(int fd, const struct inbound *header, const char *bytes, size_t length)
{
	struct iovec parts[] = { { (void *)(uintptr_t)header, sizeof(*header) }, { (void *)(uintptr_t)bytes, length } };
	struct exchange exchange = { .request = { .operation = OP_GIVE_BACK }, .data_length = sizeof(*header) + length, .parts = parts,
				     .part_count = 2 };
	int cancellation, saved = errno;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation);
	channel_call(fd, &exchange);
	pthread_setcancelstate(cancellation, NULL);
	errno = saved;
}

/* The peer's, or that of an sctpd that is gone. */
static ssize_t end_of_file(int fd, uint64_t known)
{
	struct pollfd state = { fd, 0, 0 };
	const bool is_gone = poll(&state, 1, 0) > 0 && state.revents & POLLHUP;

	if (!is_gone && !(known_state(known) & STATE_OVER))
		return 0;
	errno = is_gone ? ECONNRESET : ENOTCONN;
	return -1;
}

/* Return -1 and the error in errno; 0: somebody has been told already. */
static int ask_error(int fd)
{
	int error = 0, saved = errno;
	struct exchange exchange = { .request = { .operation = OP_GETSOCKOPT, .argument = { SOL_SOCKET, SO_ERROR, sizeof(error) } },
				     .result = (char *)&error, .result_room = sizeof(error) };

	if (channel_call(fd, &exchange) < 0)
		return -1;
	errno = error != 0 ? error : saved;
	return error != 0 ? -1 : 0;
}

/* Take away what tells readers to ask for an error, if it still is the next thing there. */
static void take_error(int fd, char *spare)
{
	struct inbound header;
	ssize_t got = take(fd, &header, &(struct msghdr){ 0 }, MSG_DONTWAIT, spare);

	if (got >= HEADER && header.type != INBOUND_ERROR)
		give_back(fd, &header, spare, (size_t)(got - HEADER));
}

/* A thread that sctpd turns away, or that has no descriptor for its calls, must learn so before it takes what it may have to give back. */
static bool may_take(int fd, const struct msghdr *message)
{
	struct sockaddr_in6 name;
	struct exchange exchange = { .request = { .operation = OP_GETSOCKNAME }, .result = (char *)&name, .result_room = sizeof(name) };

	if (!own.has_called && room_of(message) < MESSAGE_MAX)
		own.has_called = channel_call(fd, &exchange) == 0 || errno == ECONNRESET; /* that is told behind what lies there */
	return own.has_called || room_of(message) >= MESSAGE_MAX;
}

static ssize_t receive(int fd, uint64_t known, struct msghdr *message, int flags, char *spare, struct inbound *header)
{
	const bool looks = flags & MSG_PEEK;
	const size_t room = room_of(message);
	bool nothing_comes, is_there, took_ask, was_passed_on = false;
	uint32_t state;
	ssize_t got = 0;

	do {
		state = known_state(known);
		nothing_comes = state & STATE_KNOWN && (!(state & STATE_RECEIVES) || state & (STATE_LISTENS | STATE_OVER));
		is_there = state & STATE_RETURNED;
		took_ask = false;
		if (!is_there)
			got = take(fd, header, message, (flags & (MSG_PEEK | MSG_DONTWAIT)) | (nothing_comes || was_passed_on ? MSG_DONTWAIT : 0),
				   spare);
		if (!is_there && got >= HEADER && header->type == INBOUND_ASK) {
			is_there = true;
			took_ask = !looks && !(header->flags & INBOUND_REST);
		}
		if (is_there)
			got = fetch(fd, header, message, flags, spare, took_ask);
		/* Linux has it by now. */
		if (got < 0 && errno == EAGAIN && !nothing_comes && !was_passed_on && state & STATE_NEAR && (was_passed_on = channel_turn(true)))
			continue;
		if (got < 0 && errno == EAGAIN && nothing_comes && (state & STATE_LISTENS || !(flags & MSG_DONTWAIT || fd_is_nonblocking(fd))))
			errno = ENOTCONN; /* Linux says so of a listening socket at once, of others to who would wait */
		if (got < 0)
			return -1;
		if (got < HEADER && is_there)
			continue;
		if (got < HEADER)
			return end_of_file(fd, known);
		if (header->type == INBOUND_ACCEPT || header->type == INBOUND_OVER) {
			if (!looks) /* that is for accept(), or for other readers as well */
				give_back(fd, header, spare, 0);
			return fail(ENOTCONN);
		}
		if (header->type == INBOUND_ERROR && looks) /* a look takes it, too, as with a kernel */
			take_error(fd, spare);
		if (header->type == INBOUND_ERROR && ask_error(fd) < 0)
			return -1;
	} while (got < HEADER || header->type == INBOUND_ERROR);
	got -= HEADER;
	message->msg_flags = header->type == INBOUND_NOTIFICATION ? MSG_NOTIFICATION : 0;
	if ((size_t)got <= room) {
		message->msg_flags |= header->flags & INBOUND_EOR ? MSG_EOR : 0;
		return got;
	}
	if (!looks)
		give_back(fd, header, spare, (size_t)got - room);
	return (ssize_t)room;
}

ssize_t sctp_receive(int fd, uint64_t known, struct msghdr *message, int flags)
{
	struct inbound header;
	int saved = errno;
	char *spare = borrow_spare();
	ssize_t got = spare == NULL || !may_take(fd, message) ? -1 : receive(fd, known, message, flags, spare, &header);

	give_up_spare(spare);
	if (got >= 0)
		errno = saved;
	if (got > 0) {
		put_from(message, &header);
		put_information(fd, known_state(known), message, &header);
	} else {
		message->msg_controllen = 0;
		message->msg_namelen = 0;
		message->msg_flags = 0;
	}
	return got;
}

void sctp_forget_error(int fd)
{
	int saved = errno;
	struct inbound header;
	char *spare = look(fd, &header) >= HEADER && header.type == INBOUND_ERROR ? borrow_spare() : NULL;

	if (spare != NULL)
		take_error(fd, spare);
	give_up_spare(spare);
	errno = saved;
}

int sctp_wait_connection(int fd)
{
	struct inbound header;
	int flags = 0;
	ssize_t got;

	do {
		got = real()->recvfrom(fd, &header, sizeof(header), flags, NULL, NULL);
		if (got < 0 && errno == EAGAIN && flags == 0 && channel_turn(true))
			flags = MSG_DONTWAIT;
		else if (got < HEADER || header.type != INBOUND_ERROR) /* of a connect() before */
			break;
	} while (true);
	if (got < 0)
		return -1;
	if (got < HEADER || header.type != INBOUND_ACCEPT)
		return fail(got == 0 ? ECONNRESET : EINVAL);
	return 0;
}
