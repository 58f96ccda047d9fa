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
#include "stranger.h"

#define PATIENCE_S 5

static int fail(const char *why)
{
	log_line("%s", why);
	return 1;
}

/* Connect to one that runs there; set *answer to what is known of it, if it isn't to be asked. */
static int connect_to(const struct sockaddr_un *address, socklen_t length, enum show_answer *answer)
{
	const struct timeval patience = { .tv_sec = PATIENCE_S };
	struct ucred peer;
	socklen_t peer_length = sizeof(peer);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	*answer = SHOW_NONE;
	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)); /* that of connect(), too */
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (connect(fd, (const struct sockaddr *)address, length) < 0)
		*answer = errno == EAGAIN ? SHOW_SILENT : SHOW_NONE;
	else if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_length) < 0 || !is_believed(peer.uid))
		*answer = SHOW_STRANGER;
	else
		return fd;
	close(fd);
	return -1;
}

/* As clients do: first to the name that no stranger can take. */
static int connect_running(enum show_answer *answer)
{
	struct sockaddr_un address;
	int fd = connect_to(&address, service_name(&address), answer);

	if (fd >= 0 || *answer == SHOW_SILENT)
		return fd;
	if (!stranger_has_name())
		return connect_to(&address, abstract_name(&address, CONTROL_NAME), answer);
	*answer = SHOW_STRANGER;
	return -1;
}

/* Ask; return the descriptor that came with the answer, -1: none. */
static int ask(int fd, const struct request *request, enum show_answer *answer)
{
	union descriptor_room room;
	struct reply reply = { 0 };
	struct iovec vector = { &reply, sizeof(reply) };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1, .msg_control = &room, .msg_controllen = CMSG_LEN(sizeof(int)) };
	ssize_t sent = send(fd, request, sizeof(*request), MSG_NOSIGNAL), got;

	got = sent < 0 && errno == EAGAIN ? -1 : recvmsg(fd, &message, 0); /* who is refused is told so, whatever he asks */
	if (got < 0 && errno == ECONNRESET) /* ... after that his question lay unread */
		got = recvmsg(fd, &message, 0);
	*answer = got >= (ssize_t)sizeof(reply) ? SHOW_SERVES : got < 0 && errno == EAGAIN ? SHOW_SILENT : SHOW_NONE;
	if (*answer == SHOW_SERVES && reply.error == EACCES)
		*answer = SHOW_REFUSES;
	return got < 0 ? -1 : descriptor_of(&message);
}

enum show_answer show_answers(void)
{
	const struct request request = { .version = PROTOCOL_VERSION, .operation = OP_COUNT }; /* the answer to which is an error */
	enum show_answer answer;
	int fd = connect_running(&answer);

	if (fd < 0)
		return answer;
	ask(fd, &request, &answer);
	close(fd);
	return answer;
}

static int say_why_not(enum show_answer answer, bool connected)
{
	switch (answer) {
	case SHOW_STRANGER:
		stranger_tell("No sctpd serves here");
		return 1;
	case SHOW_REFUSES:
		return fail(REFUSES_USER);
	case SHOW_SILENT:
		return fail("the one of this network namespace doesn't answer: it is stuck, or another program has its name (@" CONTROL_NAME
			    "): see ss -xlp");
	default:
		return fail(connected ? "the one of this network namespace ended" : "none runs in this network namespace");
	}
}

int show_status(bool json)
{
	const struct request request = { .version = PROTOCOL_VERSION, .operation = OP_STATUS, .argument = { json } };
	char bytes[65536];
	enum show_answer answer;
	int fd = connect_running(&answer), file;
	ssize_t got;

	if (fd < 0)
		return say_why_not(answer, false);
	file = ask(fd, &request, &answer);
	close(fd);
	if (file < 0)
		return say_why_not(answer, true);
	lseek(file, 0, SEEK_SET);
	while ((got = read(file, bytes, sizeof(bytes))) > 0)
		fwrite(bytes, 1, (size_t)got, stdout);
	close(file);
	return 0;
}
