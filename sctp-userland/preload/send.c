#include "sctp.h"

#include <errno.h>
#include "linux_headers.h"
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/time.h>

#include "../protocol.h"
#include "channel.h"
#include "fds.h"
#include "real.h"

/* Until sctpd takes the plug out, the descriptor isn't writable: poll() and its kin see it natively. More than a quarter of its buffer it is. */
static void plug(int fd)
{
	static char bytes[MESSAGE_MAX];
	int buffer = 0;
	socklen_t length = sizeof(buffer);
	size_t size = PLUG_SIZE;

	if (real()->getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, &length) == 0 && (size_t)buffer / 4 > size)
		size = (size_t)buffer / 4 + 1 < sizeof(bytes) ? (size_t)buffer / 4 + 1 : sizeof(bytes);
	real()->sendto(fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
}

#define PARTS_MAX 16
#define ONE_WAY_FLAGS (SCTP_UNORDERED | SCTP_SACK_IMMEDIATELY | SCTP_PR_SCTP_MASK)

/* The destination that a message names, as a number; 0: none. Should two have the same number, then sctpd, which reads the names, tells of
 * an error inward. */
static uint64_t destination_of(const struct exchange *exchange)
{
	const unsigned char *bytes = exchange->address;
	uint64_t number = exchange->request.send.association * 0x9E3779B97F4A7C15;
	size_t i;

	for (i = 0; i < exchange->address_length; i++)
		number = (number ^ bytes[i]) * 0x100000001B3; /* FNV-1a */
	return number;
}

/* Send it down the pair, if nothing can be wrong with it and there is room. Return what sendmsg() does, or -1 and EPIPE: it must be a call, which
 * then says what is wrong, or waits for usrsctp's room. *late: its end may have been before it; OP_SENT tells. */
static ssize_t send_one_way(int fd, uint64_t known, const struct exchange *exchange, bool *late)
{
	const struct send_parameters *send = &exchange->request.send;
	const struct way way = known_way(known, destination_of(exchange));
	struct outbound header = { OUTBOUND_DATA, clock_ms(), (uint32_t)exchange->address_length, *send };
	struct iovec parts[2 + PARTS_MAX] = { { &header, sizeof(header) }, { (void *)(uintptr_t)exchange->address, exchange->address_length } };
	struct msghdr whole = { .msg_iov = parts, .msg_iovlen = 2 + exchange->part_count };
	const uint32_t state = known_state(known);
	ssize_t sent;

	if (way.number == 0 || state >> STATE_WAY_SHIFT != way.number || state & (STATE_TAKES_NO_MORE | STATE_CALLS_ONLY) ||
	    send->stream >= way.streams || exchange->data_length == 0 || exchange->data_length > MESSAGE_MAX ||
	    send->flags & ~ONE_WAY_FLAGS || exchange->part_count > PARTS_MAX)
		return fail(EPIPE);
	memcpy(parts + 2, exchange->parts, exchange->part_count * sizeof(*parts));
	sent = real()->sendmsg(fd, &whole, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (sent < 0 && (errno == EAGAIN || errno == ECONNRESET || errno == ENOTCONN || errno == EMSGSIZE))
		errno = EPIPE;
	*late = known_state(known) >> STATE_WAY_SHIFT != way.number || known_state(known) & STATE_TAKES_NO_MORE;
	return sent < 0 ? -1 : (ssize_t)exchange->data_length;
}

static int wait_writable(int fd, int timeout_option)
{
	struct pollfd item = { fd, POLLOUT, 0 };
	struct timeval limit = { 0 };
	socklen_t length = sizeof(limit);
	int timeout_ms = -1, ready;

	if (real()->getsockopt(fd, SOL_SOCKET, timeout_option, &limit, &length) == 0 && (limit.tv_sec != 0 || limit.tv_usec != 0))
		timeout_ms = (int)(limit.tv_sec * 1000 + (limit.tv_usec + 999) / 1000);
	ready = poll(&item, 1, timeout_ms);
	if (ready == 0)
		errno = EAGAIN;
	return ready > 0 ? 0 : -1;
}

static int read_information(const struct msghdr *message, struct send_parameters *send)
{
	struct cmsghdr *item;

	for (item = CMSG_FIRSTHDR(message); item != NULL; item = CMSG_NXTHDR((struct msghdr *)(uintptr_t)message, item)) {
		const void *data = CMSG_DATA(item);
		size_t length = item->cmsg_len - CMSG_LEN(0);

		if (item->cmsg_level != IPPROTO_SCTP)
			continue;
		if (item->cmsg_type == SCTP_SNDRCV && length >= sizeof(struct sctp_sndrcvinfo)) {
			struct sctp_sndrcvinfo information;

			memcpy(&information, data, sizeof(information));
			send->stream = information.sinfo_stream;
			send->flags = information.sinfo_flags;
			send->ppid = information.sinfo_ppid;
			send->context = information.sinfo_context;
			send->association = (uint32_t)information.sinfo_assoc_id;
			send->pr_policy = information.sinfo_flags & SCTP_PR_SCTP_MASK;
			send->pr_value = information.sinfo_timetolive;
			if (send->pr_policy == 0 && send->pr_value != 0)
				send->pr_policy = SCTP_PR_SCTP_TTL;
			send->gives |= GIVES_LIFETIME;
		} else if (item->cmsg_type == SCTP_SNDINFO && length >= sizeof(struct sctp_sndinfo)) {
			struct sctp_sndinfo information;

			memcpy(&information, data, sizeof(information));
			send->stream = information.snd_sid;
			send->flags = information.snd_flags;
			send->ppid = information.snd_ppid;
			send->context = information.snd_context;
			send->association = (uint32_t)information.snd_assoc_id;
		} else if (item->cmsg_type == SCTP_PRINFO && length >= sizeof(struct sctp_prinfo)) {
			struct sctp_prinfo information;

			memcpy(&information, data, sizeof(information));
			send->pr_policy = information.pr_policy;
			send->pr_value = information.pr_value;
			send->gives |= GIVES_LIFETIME;
		} else if (item->cmsg_type != SCTP_INIT && item->cmsg_type != SCTP_AUTHINFO && item->cmsg_type != SCTP_DSTADDRV4 &&
			   item->cmsg_type != SCTP_DSTADDRV6) { /* sctpd authenticates nothing, with whatever key */
			return fail(EINVAL);
		}
		send->gives |= GIVES_INFORMATION;
	}
	return 0;
}

static size_t length_of(const struct msghdr *message)
{
	size_t i, length = 0;

	for (i = 0; i < message->msg_iovlen && length <= MESSAGE_MAX; i++)
		length = message->msg_iov[i].iov_len <= MESSAGE_MAX ? length + message->msg_iov[i].iov_len : SIZE_MAX;
	return length;
}

/* Whether this is what ended, or prevented, the connection: it is told once. */
static bool tells_end(int error)
{
	return error == ECONNREFUSED || error == ECONNRESET || error == ECONNABORTED || error == ETIMEDOUT;
}

/* Return -1; errno stays. */
static int failed(int fd, int flags)
{
	if (tells_end(errno))
		sctp_forget_error(fd);
	if (errno == EPIPE && !(flags & MSG_NOSIGNAL)) {
		pthread_kill(pthread_self(), SIGPIPE);
		errno = EPIPE;
	}
	return -1;
}

ssize_t sctp_send(int fd, uint64_t known, const struct msghdr *message, int flags)
{
	struct way way;
	struct exchange exchange = { .request = { .operation = OP_SEND }, .result = (char *)&way, .result_room = sizeof(way) };
	struct exchange ask = { .request = { .operation = OP_SENT } };
	int result, saved = errno;
	bool late = false, waits;
	ssize_t sent;

	if (read_information(message, &exchange.request.send) < 0)
		return -1;
	if (flags & MSG_FIN) {
		exchange.request.send.flags |= SCTP_EOF;
		exchange.request.send.gives |= GIVES_INFORMATION;
	}
	if (message->msg_name != NULL) {
		exchange.address = message->msg_name;
		exchange.address_length = message->msg_namelen;
		if (exchange.address_length > sizeof(struct sockaddr_in6))
			exchange.address_length = sizeof(struct sockaddr_in6);
		if (((const struct sockaddr *)message->msg_name)->sa_family == AF_INET &&
		    exchange.address_length > sizeof(struct sockaddr_in))
			exchange.address_length = sizeof(struct sockaddr_in);
	}
	exchange.data_length = length_of(message);
	exchange.parts = message->msg_iov;
	exchange.part_count = message->msg_iovlen;
	sent = send_one_way(fd, known, &exchange, &late);
	if (sent >= 0 && late && channel_call(fd, &ask) < 0)
		return failed(fd, flags);
	if (sent >= 0) {
		channel_note_sent();
		errno = saved;
	}
	if (sent >= 0 || errno != EPIPE)
		return sent;
	if (exchange.data_length > MESSAGE_MAX)
		return fail(EMSGSIZE);
	for (;;) {
		result = channel_call(fd, &exchange);
		if (result == 0 || errno != EAGAIN)
			break;
		waits = !(flags & MSG_DONTWAIT || fd_is_nonblocking(fd));
		if (!waits && known_state(known) & STATE_NEAR && channel_turn(true)) /* in Linux the peer would have it by now */
			continue;
		plug(fd);
		if (!waits) {
			errno = EAGAIN;
			break;
		}
		if (wait_writable(fd, SO_SNDTIMEO) < 0)
			break;
		exchange.request.argument[0] = exchange.reply.result;
	}
	if (result < 0)
		return failed(fd, flags);
	if (exchange.reply.data_length == sizeof(way))
		known_keep_way(known, destination_of(&exchange), way);
	channel_note_sent();
	errno = saved;
	return exchange.reply.result;
}

int sctp_connect_to(int fd, const void *addresses, size_t length, int *association)
{
	struct exchange exchange = { .request = { .operation = OP_CONNECT }, .address = addresses, .address_length = length };
	int error = 0, saved = errno;
	struct exchange outcome = { .request = { .operation = OP_GETSOCKOPT,
						 .argument = { SOL_SOCKET, SO_ERROR, sizeof(error), 1 } },
				    .result = (char *)&error, .result_room = sizeof(error) };

	sctp_forget_error(fd); /* of an attempt before */
	if (channel_call(fd, &exchange) < 0 && errno != EINPROGRESS)
		return -1;
	channel_note_sent();
	if (association != NULL)
		*association = exchange.reply.result;
	plug(fd);
	if (fd_is_nonblocking(fd))
		return fail(EINPROGRESS);
	if (wait_writable(fd, SO_SNDTIMEO) < 0) {
		if (errno == EAGAIN)
			errno = EINPROGRESS;
		return -1;
	}
	if (channel_call(fd, &outcome) < 0)
		return -1;
	if (error != 0)
		return fail(error);
	errno = saved;
	return 0;
}
