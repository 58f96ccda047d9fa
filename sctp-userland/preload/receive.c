/* Receiving. A message (header and bytes) lies as one datagram in the descriptor. When the program's buffer is too small for it,
 * what it took is remembered by the kernel as the descriptor's peek offset, so the rest is found by whoever reads next. Looking at a message
 * and taking it, whole or in part, are several calls: each reader does them in a turn of its own (turn.c), and waits for messages outside. */
#include "receive.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include "linux_headers.h"
#include <string.h>

#include "../protocol.h"
#include "channel.h"
#include "fds.h"
#include "memory.h"
#include "real.h"
#include "turn.h"

#define VECTORS 64
#define HEADER ((int)sizeof(struct inbound))
#define NOTHING_THERE (-2)
#define ERROR_CAME (-3)

static size_t room_of(const struct msghdr *message)
{
	size_t i, room = 0;

	for (i = 0; i < message->msg_iovlen; i++)
		room += message->msg_iov[i].iov_len;
	return room;
}

/* Append an item of ancillary data, as the kernel does: whole, or cut with MSG_CTRUNC. */
static void put(struct msghdr *message, size_t room, int type, const void *data, size_t length)
{
	struct cmsghdr *item = (struct cmsghdr *)((char *)message->msg_control + message->msg_controllen);

	if (message->msg_control == NULL || message->msg_controllen + CMSG_SPACE(length) > room) {
		message->msg_flags |= MSG_CTRUNC;
		return;
	}
	memset(item, 0, CMSG_SPACE(length));
	item->cmsg_level = IPPROTO_SCTP;
	item->cmsg_type = type;
	item->cmsg_len = CMSG_LEN(length);
	memcpy(CMSG_DATA(item), data, length);
	message->msg_controllen += CMSG_SPACE(length);
}

static ssize_t look(int fd, struct inbound *header)
{
	struct iovec vector = { header, sizeof(*header) };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1 };

	return real()->recvmsg(fd, &message, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
}

static int peek_offset(int fd)
{
	int offset = -1;
	socklen_t length = sizeof(offset);

	return real()->getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, &length) == 0 ? offset : -1;
}

/* Of the message behind this one, when it lies there already. */
static void put_next_information(int fd, struct msghdr *message, size_t room)
{
	struct inbound next;
	ssize_t length = look(fd, &next);
	struct exchange turn = { .request = { .operation = OP_GETSOCKNAME }, .result = (char *)&next, .result_room = sizeof(next) };

	if (length < 0 && channel_call(fd, &turn) == 0) /* sctpd answers when it has passed on what it has */
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
	if (wants & STATE_WANTS_NXTINFO && message->msg_flags & MSG_EOR && peek_offset(fd) < 0)
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

static bool is_bad(const struct msghdr *message)
{
	size_t i;

	for (i = 0; i < message->msg_iovlen; i++)
		if (!memory_writable(message->msg_iov[i].iov_base, message->msg_iov[i].iov_len != 0))
			return true;
	return false;
}

/* Wait until there is something, as long as this call may. No byte is looked at: that would move the peek offset. */
static ssize_t wait_for_something(int fd, uint32_t state, const struct msghdr *message, bool waits)
{
	if (is_bad(message)) {
		errno = EFAULT;
		return -1;
	}
	/* Linux says so of a listening socket at once, of others to who would wait. */
	if (state & STATE_LISTENS || (state & STATE_KNOWN && !(state & STATE_RECEIVES) && waits)) {
		errno = ENOTCONN;
		return -1;
	}
	return real()->recvmsg(fd, &(struct msghdr){ 0 }, MSG_PEEK | (waits ? 0 : MSG_DONTWAIT));
}

static void set_peek_offset(int fd, int offset)
{
	real()->setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof(offset));
}

/* Read the program's share straight into its buffers, header and all in one call. */
static ssize_t take_whole(int fd, struct inbound *header, const struct msghdr *message, int flags)
{
	struct iovec vectors[VECTORS];
	struct msghdr whole = { .msg_iov = vectors, .msg_iovlen = 1 };
	size_t i;
	ssize_t got;

	vectors[0] = (struct iovec){ header, sizeof(*header) };
	for (i = 0; i < message->msg_iovlen && whole.msg_iovlen < VECTORS; i++)
		vectors[whole.msg_iovlen++] = message->msg_iov[i];
	got = real()->recvmsg(fd, &whole, flags);
	return got > 0 ? got - HEADER : got;
}

/* Part of a message, or the rest of one, or a look at either. */
static ssize_t take_part(int fd, ssize_t total, struct msghdr *message, int flags, int offset)
{
	struct msghdr part = { .msg_iov = message->msg_iov, .msg_iovlen = message->msg_iovlen };
	char nothing;
	ssize_t got;

	if (offset < HEADER)
		offset = HEADER;
	set_peek_offset(fd, offset);
	got = real()->recvmsg(fd, &part, MSG_PEEK | MSG_DONTWAIT);
	if (got < 0)
		return got;
	if (offset + got < total) {
		set_peek_offset(fd, flags & MSG_PEEK ? (offset > HEADER ? offset : 0) : offset + (int)got);
		message->msg_flags &= ~MSG_EOR;
		return got;
	}
	set_peek_offset(fd, flags & MSG_PEEK ? (offset > HEADER ? offset : 0) : 0);
	if (!(flags & MSG_PEEK)) {
		real()->recvfrom(fd, &nothing, 1, MSG_DONTWAIT, NULL, NULL);
		set_peek_offset(fd, 0);
	}
	return got;
}

/* The peer's, or that of an sctpd that is gone. */
static ssize_t end_of_file(int fd)
{
	struct pollfd state = { fd, 0, 0 };

	if (poll(&state, 1, 0) <= 0 || !(state.revents & POLLHUP))
		return 0;
	errno = ECONNRESET;
	return -1;
}

/* One attempt, without waiting. */
static ssize_t attempt(int fd, struct msghdr *message, int flags, struct inbound *header)
{
	int offset = peek_offset(fd);
	ssize_t total, got;

	if (offset >= 0)
		set_peek_offset(fd, 0);
	total = look(fd, header);
	if (offset >= 0)
		set_peek_offset(fd, offset);
	if (total < 0)
		return errno == EAGAIN ? NOTHING_THERE : -1;
	if (total < HEADER)
		return end_of_file(fd);
	if (header->type == INBOUND_ACCEPT) { /* that is for accept() */
		errno = ENOTCONN;
		return -1;
	}
	if (header->type == INBOUND_ERROR && header->flags & INBOUND_STAYS) {
		errno = header->error;
		return -1;
	}
	if (header->type == INBOUND_ERROR) { /* a look takes it, too, as with a kernel */
		take_whole(fd, header, &(struct msghdr){ 0 }, MSG_DONTWAIT);
		return ERROR_CAME;
	}
	message->msg_flags = header->flags & INBOUND_EOR ? MSG_EOR : 0;
	if (header->type == INBOUND_NOTIFICATION)
		message->msg_flags |= MSG_NOTIFICATION;
	if (offset <= 0 && (size_t)(total - HEADER) <= room_of(message) && message->msg_iovlen < VECTORS) {
		got = take_whole(fd, header, message, (flags & MSG_PEEK) | MSG_DONTWAIT);
		if (offset >= 0 && flags & MSG_PEEK)
			set_peek_offset(fd, 0);
	} else {
		got = take_part(fd, total, message, flags, offset);
	}
	return got;
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

ssize_t sctp_receive(int fd, struct msghdr *message, int flags)
{
	const uint64_t known = fd_known(fd);
	const bool waits = !(flags & MSG_DONTWAIT) && !fd_is_nonblocking(fd);
	struct inbound header;
	struct turn turn;
	int saved = errno;
	ssize_t got;

	do {
		/* Where something may come it is waited for first: what lies there needs no waiting, and one turn is enough. */
		if (waits && known_state(known) & STATE_RECEIVES && wait_for_something(fd, known_state(known), message, true) < 0) {
			got = -1;
			break;
		}
		turn_begin(fd, known, &turn);
		got = attempt(fd, message, flags, &header);
		turn_end(fd, &turn);
		if ((got == NOTHING_THERE && wait_for_something(fd, known_state(known), message, waits) < 0) ||
		    (got == ERROR_CAME && ask_error(fd) < 0))
			got = -1;
	} while (got == NOTHING_THERE || got == ERROR_CAME);
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
	int saved = errno, offset;
	struct inbound header;
	struct turn turn;
	ssize_t total;

	turn_begin(fd, fd_known(fd), &turn);
	offset = peek_offset(fd);
	if (offset <= 0) { /* else a message is there before it */
		total = look(fd, &header);
		if (offset == 0)
			set_peek_offset(fd, 0);
		if (total >= HEADER && header.type == INBOUND_ERROR && !(header.flags & INBOUND_STAYS))
			take_whole(fd, &header, &(struct msghdr){ 0 }, MSG_DONTWAIT);
	}
	turn_end(fd, &turn);
	errno = saved;
}

int sctp_wait_connection(int fd)
{
	struct inbound header;
	ssize_t got;

	do
		got = real()->recvfrom(fd, &header, sizeof(header), 0, NULL, NULL);
	while (got >= HEADER && header.type == INBOUND_ERROR && !(header.flags & INBOUND_STAYS)); /* of a connect() before */
	if (got < 0)
		return -1;
	if (got < HEADER || header.type != INBOUND_ACCEPT) {
		errno = got == 0 ? ECONNRESET : header.type == INBOUND_ERROR ? header.error : EINVAL;
		return -1;
	}
	return 0;
}
