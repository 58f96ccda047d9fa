/* The client side of sctpd --status. */
#include "show.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../protocol.h"
#include "loop.h"

static int fail(const char *why)
{
	log_line("%s", why);
	return 1;
}

static int connect_running(void)
{
	struct sockaddr_un address;
	socklen_t length = abstract_name(&address, CONTROL_NAME);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, length) < 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

bool show_answers(void)
{
	struct request request = { .version = PROTOCOL_VERSION, .operation = OP_STATUS, .argument = { 0, INT_MAX } };
	struct reply reply;
	int fd = connect_running();
	bool answers;

	if (fd < 0)
		return false;
	answers = send(fd, &request, sizeof(request), MSG_NOSIGNAL) >= 0 && recv(fd, &reply, sizeof(reply), 0) == sizeof(reply);
	close(fd);
	return answers;
}

int show_status(bool json)
{
	static char answer[sizeof(struct reply) + ADDRESSES_MAX + 65536];
	struct request request = { .version = PROTOCOL_VERSION, .operation = OP_STATUS, .argument = { json } };
	struct reply reply;
	int fd = connect_running();
	bool any = false;

	if (fd < 0)
		return fail("none runs in this network namespace");
	if (json)
		fputs("[", stdout);
	do {
		ssize_t got = send(fd, &request, sizeof(request), MSG_NOSIGNAL) < 0 ? -1 : recv(fd, answer, sizeof(answer), 0);
		size_t bytes;

		if (got < (ssize_t)sizeof(reply))
			return fail("the one of this network namespace refused: it serves root, its own user and its --group");
		memcpy(&reply, answer, sizeof(reply));
		bytes = (size_t)got - sizeof(reply);
		if (reply.result == 0 && json && bytes >= 2)
			bytes -= 2; /* no comma after the last one */
		fwrite(answer + sizeof(reply), 1, bytes, stdout);
		any |= bytes > 0;
		request.argument[1] = reply.result;
	} while (reply.result > 0);
	fputs(json ? "]\n" : any ? "" : "no sockets\n", stdout);
	close(fd);
	return 0;
}
