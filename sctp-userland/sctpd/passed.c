/* Descriptors that clients pass. One may be the last copy of a socket that lingers, whose close() would hold everybody up: so none is left
 * for the kernel to close, in a message that is cut or never read. */
#define _GNU_SOURCE
#include "passed.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../protocol.h"

#define MESSAGES_MAX 4096 /* more than fit into a queue */

void passed_close(int fd)
{
	const struct linger never = { 0 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &never, sizeof(never));
	close(fd);
}

int passed_take(struct msghdr *message)
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
				passed_close(fd);
		}
	}
	return taken;
}

/* Return as recv() does. control: how much came besides the bytes. */
static ssize_t discard(int fd, size_t *control_length)
{
	char bytes[PLUG_SIZE], control[CMSG_SPACE(DESCRIPTORS_MAX * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
	struct iovec vector = { bytes, sizeof(bytes) };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	int first;

	*control_length = 0;
	if (got < 0)
		return got;
	*control_length = message.msg_controllen;
	first = passed_take(&message);
	if (first >= 0)
		passed_close(first);
	return got;
}

ssize_t passed_discard(int fd)
{
	size_t control_length;

	return discard(fd, &control_length);
}

bool passed_drain(int fd)
{
	bool reset = false;
	size_t control_length;
	ssize_t got;
	int yes = 1, number;

	setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes)); /* with every message, though empty: only the end has none */
	for (number = 0; number < MESSAGES_MAX; number++) {
		got = discard(fd, &control_length);
		if (got < 0 && errno == ECONNRESET)
			reset = true;
		else if (got < 0 ? errno != EINTR : got == 0 && control_length == 0)
			break;
	}
	return reset;
}
