/* Descriptors that clients pass. One may be the last copy of a socket that lingers, or of one that has such a socket in its queue, or of a file
 * whose file system is a program: close() waits for these, and so does the kernel when it closes what lies in a message that is read and finds
 * no room. So messages are looked at first. What brought more than the one descriptor that it may is never read: it ends with the
 * connection, by disposal.c. */
#define _GNU_SOURCE
#include "passed.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "../protocol.h"
#include "closer.h"
#include "disposal.h"

#define MESSAGES_MAX 4096 /* more than fit into a queue */

static int spare = -1;

void passed_keep_spare(void)
{
	if (spare < 0)
		spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

void passed_give_spare(void)
{
	if (spare >= 0)
		close(spare);
	spare = -1;
}

bool passed_is_socket(int fd)
{
	int type;
	socklen_t length = sizeof(type);

	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0;
}

void passed_close(uid_t user, int fd)
{
	const struct linger never = { 0 }; /* for who passed it and closes it last */

	if (setsockopt(fd, SOL_SOCKET, SO_LINGER, &never, sizeof(never)) < 0 || !disposal_add(user, fd))
		closer_close(user, fd);
}

static ssize_t look(int from, char *bytes, size_t room, int *fd, bool *more)
{
	char control[CMSG_LEN(sizeof(int))] __attribute__((aligned(sizeof(size_t)))); /* CMSG_SPACE would have room for two */
	struct iovec vector = { bytes, room };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	ssize_t length = recvmsg(from, &message, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	const struct cmsghdr *item = length < 0 ? NULL : CMSG_FIRSTHDR(&message);

	*fd = -1;
	*more = length >= 0 && message.msg_flags & MSG_CTRUNC;
	if (item != NULL && item->cmsg_level == SOL_SOCKET && item->cmsg_type == SCM_RIGHTS)
		memcpy(fd, CMSG_DATA(item), sizeof(int));
	return length;
}

ssize_t passed_look(int from, char *bytes, size_t room, int *fd, bool *more)
{
	ssize_t length = look(from, bytes, room, fd, more);

	if (!*more || *fd >= 0 || spare < 0)
		return length;
	passed_give_spare();
	return look(from, bytes, room, fd, more);
}

void passed_take(int from)
{
	recv(from, NULL, 0, MSG_DONTWAIT);
}

ssize_t passed_discard(int fd)
{
	char bytes[PLUG_SIZE];
	struct msghdr message = { 0 }; /* no room for descriptors */

	if (recvmsg(fd, &message, MSG_PEEK | MSG_DONTWAIT) >= 0 && message.msg_flags & MSG_CTRUNC)
		return PASSED_BRINGS;
	return recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
}

/* Read all there is, up to a message that brought descriptors: return whether there is one. It isn't read. */
static bool look_through(int fd, bool *reset)
{
	int yes = 1, number;

	setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes)); /* with every message, though empty: only the end has none */
	for (number = 0; number < MESSAGES_MAX; number++) {
		char sender[CMSG_SPACE(sizeof(struct ucred))]; /* no room for descriptors */
		struct msghdr message = { .msg_control = sender, .msg_controllen = sizeof(sender) };
		ssize_t got = recvmsg(fd, &message, MSG_PEEK | MSG_DONTWAIT);

		if (got < 0 && errno == ECONNRESET)
			*reset = true;
		else if (got < 0 ? errno != EINTR : message.msg_controllen == 0)
			return false;
		else if (got >= 0 && message.msg_flags & MSG_CTRUNC)
			return true;
		else if (got >= 0)
			passed_take(fd);
	}
	return true; /* or so it may be */
}

bool passed_was_reset(int fd)
{
	bool reset = false;

	look_through(fd, &reset); /* the kernel says it before all that lies there */
	return reset;
}

void passed_end(uid_t user, int fd)
{
	bool reset = false;

	shutdown(fd, SHUT_RD); /* nothing more comes */
	if (look_through(fd, &reset)) {
		shutdown(fd, SHUT_RDWR); /* the other end needn't wait for it */
		passed_close(user, fd);
	} else {
		close(fd);
	}
}
