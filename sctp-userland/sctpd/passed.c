/* Descriptors that clients pass. One may be the last copy of a socket that lingers, or of one that has such a socket in its queue, or of a file
 * whose file system is a program: close() waits for these. So none is closed here, or left for the kernel to close, in a message that is cut
 * or never read. */
#define _GNU_SOURCE
#include "passed.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../protocol.h"
#include "closer.h"

#define MESSAGES_MAX 4096 /* more than fit into a queue */

int passed_take(uid_t user, struct msghdr *message)
{
	struct cmsghdr *item;
	int taken = -1;

	for (item = CMSG_FIRSTHDR(message); item != NULL; item = CMSG_NXTHDR(message, item)) {
		size_t i, number = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS)
			continue;
		for (i = 0; i < number; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(item) + i * sizeof(int), sizeof(int));
			if (taken < 0)
				taken = fd;
			else
				closer_close(user, fd);
		}
	}
	return taken;
}

struct came {
	bool control, descriptors; /* besides the bytes */
};

static ssize_t discard(uid_t user, int fd, struct came *came)
{
	char bytes[PLUG_SIZE], control[CMSG_SPACE(DESCRIPTORS_MAX * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
	struct iovec vector = { bytes, sizeof(bytes) };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	int first;

	*came = (struct came){ 0 };
	if (got < 0)
		return got;
	first = passed_take(user, &message);
	*came = (struct came){ message.msg_controllen > 0, first >= 0 };
	if (first >= 0)
		closer_close(user, first);
	return got;
}

ssize_t passed_discard(uid_t user, int fd)
{
	struct came came;

	return discard(user, fd, &came);
}

/* Read all there is, up to a message that brought descriptors: return whether there was one, as more may lie behind it. */
static bool drain(uid_t user, int fd, bool *reset)
{
	struct came came;
	ssize_t got;
	int yes = 1, number;

	setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes)); /* with every message, though empty: only the end has none */
	for (number = 0; number < MESSAGES_MAX; number++) {
		got = discard(user, fd, &came);
		if (came.descriptors)
			return true;
		if (got < 0 && errno == ECONNRESET)
			*reset = true;
		else if (got < 0 ? errno != EINTR : got == 0 && !came.control)
			break;
	}
	return false;
}

bool passed_was_reset(uid_t user, int fd)
{
	bool reset = false;
	socklen_t length = sizeof(int);
	int error = 0;

	if (closer_is_behind(user)) /* it may bring no more */
		return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == ECONNRESET;
	drain(user, fd, &reset); /* the kernel says it before all that lies there */
	return reset;
}

void passed_end(uid_t user, int fd)
{
	bool reset = false;

	shutdown(fd, SHUT_RD); /* nothing more comes */
	if (closer_is_behind(user) || drain(user, fd, &reset)) {
		shutdown(fd, SHUT_RDWR); /* the other end needn't wait for it */
		closer_close(user, fd);
	} else {
		close(fd);
	}
}
