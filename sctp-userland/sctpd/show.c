/* The client side of sctpd --status. */
#include "show.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "../protocol.h"
#include "loop.h"

#define PATIENCE_S 5
#define JSON_SEPARATOR ",\n"

static int fail(const char *why)
{
	log_line("%s", why);
	return 1;
}

/* Connect to the one that runs; set *answer to what is known of it, if it isn't to be asked. */
static int connect_running(enum show_answer *answer)
{
	const struct timeval patience = { .tv_sec = PATIENCE_S };
	struct sockaddr_un address;
	struct ucred peer;
	socklen_t length = abstract_name(&address, CONTROL_NAME), peer_length = sizeof(peer);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	*answer = SHOW_NONE;
	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)); /* that of connect(), too */
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (connect(fd, (struct sockaddr *)&address, length) < 0)
		*answer = errno == EAGAIN ? SHOW_SILENT : SHOW_NONE;
	else if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_length) < 0 || !is_believed(peer.uid))
		*answer = SHOW_STRANGER;
	else
		return fd;
	close(fd);
	return -1;
}

/* Ask; return the length of the answer, or -1 and why there was none. */
static ssize_t ask(int fd, const struct request *request, void *to, size_t room, enum show_answer *answer)
{
	ssize_t sent = send(fd, request, sizeof(*request), MSG_NOSIGNAL), got;

	const struct reply *reply = to;

	got = sent < 0 && errno == EAGAIN ? -1 : recv(fd, to, room, 0); /* who is refused is told so, whatever he asks */
	if (got < 0 && errno == ECONNRESET) /* ... after that his question lay unread */
		got = recv(fd, to, room, 0);
	*answer = got >= (ssize_t)sizeof(*reply) ? SHOW_SERVES : got < 0 && errno == EAGAIN ? SHOW_SILENT : SHOW_NONE;
	if (*answer == SHOW_SERVES && reply->error == EACCES)
		*answer = SHOW_REFUSES;
	return *answer == SHOW_SERVES ? got : -1;
}

enum show_answer show_answers(void)
{
	struct request request = { .version = PROTOCOL_VERSION, .operation = OP_STATUS, .argument = { 0, 0, -1 } };
	char reply[sizeof(struct reply) + sizeof(struct status_place)] __attribute__((aligned(sizeof(struct reply))));
	enum show_answer answer;
	int fd = connect_running(&answer);

	if (fd < 0)
		return answer;
	ask(fd, &request, reply, sizeof(reply), &answer);
	close(fd);
	return answer;
}

static int say_why_not(enum show_answer answer, bool connected)
{
	switch (answer) {
	case SHOW_STRANGER:
		return fail(STRANGER_HAS_NAME);
	case SHOW_REFUSES:
		return fail(REFUSES_USER);
	case SHOW_SILENT:
		return fail("the one of this network namespace doesn't answer: it is stuck, or another program has its name (@" CONTROL_NAME
			    "): see ss -xlp");
	default:
		return fail(connected ? "the one of this network namespace ended" : "none runs in this network namespace");
	}
}

/* Print what comes with one answer. A separator after it is kept until something follows. */
static void print(const char *bytes, size_t length, bool json, bool *separate)
{
	const size_t separator = strlen(JSON_SEPARATOR);

	if (length == 0)
		return;
	if (*separate)
		fputs(JSON_SEPARATOR, stdout);
	*separate = json && length >= separator && memcmp(bytes + length - separator, JSON_SEPARATOR, separator) == 0;
	fwrite(bytes, 1, length - (*separate ? separator : 0), stdout);
}

int show_status(bool json)
{
	static char bytes[sizeof(struct reply) + sizeof(struct status_place) + STATUS_MAX];
	struct request request = { .version = PROTOCOL_VERSION, .operation = OP_STATUS, .argument = { json, -1, -1 } };
	const size_t header = sizeof(struct reply) + sizeof(struct status_place);
	struct reply reply;
	enum show_answer answer;
	int fd = connect_running(&answer);
	bool any = false, separate = false;

	if (fd < 0)
		return say_why_not(answer, false);
	do {
		ssize_t got = ask(fd, &request, bytes, sizeof(bytes), &answer);

		if (got < (ssize_t)header)
			return say_why_not(answer, true);
		memcpy(&reply, bytes, sizeof(reply));
		memcpy(&request.argument[1], bytes + sizeof(reply), sizeof(struct status_place));
		if (json && !any)
			fputs("[", stdout);
		any |= json || (size_t)got > header;
		print(bytes + header, (size_t)got - header, json, &separate);
	} while (reply.result > 0);
	fputs(json ? "]\n" : any ? "" : "no sockets\n", stdout);
	close(fd);
	return 0;
}
