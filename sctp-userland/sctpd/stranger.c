#include "stranger.h"

#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <stdio.h>
#include <string.h>

#include "../protocol.h"
#include "loop.h"

#define LISTENS 10 /* states of sockets, which only the kernel has names for */
#define CLOSED 7   /* bound, not listening */
#define NONE ((uid_t)-1)

/* The user in this answer if it is about the socket with the name, else NONE. */
static uid_t owner_in(struct nlmsghdr *message)
{
	struct unix_diag_msg *socket = NLMSG_DATA(message);
	const struct nlattr *attribute;
	struct sockaddr_un name;
	const size_t length = abstract_name(&name, CONTROL_NAME) - __builtin_offsetof(struct sockaddr_un, sun_path);
	const char *next = (const char *)(socket + 1), *end = (const char *)message + message->nlmsg_len;
	uid_t owner = NONE;
	bool has_name = false;

	if (message->nlmsg_len < NLMSG_LENGTH(sizeof(*socket)) || socket->udiag_type != SOCK_SEQPACKET)
		return NONE;
	for (; next + NLA_HDRLEN <= end; next += NLA_ALIGN(attribute->nla_len)) {
		attribute = (const struct nlattr *)next;
		if (attribute->nla_len < NLA_HDRLEN)
			break;
		if (attribute->nla_type == UNIX_DIAG_NAME)
			has_name = attribute->nla_len == NLA_HDRLEN + length && memcmp(next + NLA_HDRLEN, name.sun_path, length) == 0;
		else if (attribute->nla_type == UNIX_DIAG_UID && attribute->nla_len == NLA_HDRLEN + sizeof(owner))
			memcpy(&owner, next + NLA_HDRLEN, sizeof(owner));
	}
	return has_name ? owner : NONE;
}

/* The user who has made the socket with the name; NONE: there is none, or the kernel doesn't say. Accepted connections, which have the name, too,
 * are in another state. */
static uid_t name_owner(void)
{
	struct {
		struct nlmsghdr header;
		struct unix_diag_req request;
	} question = {
		{ .nlmsg_len = sizeof(question), .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
		{ .sdiag_family = AF_UNIX, .udiag_states = 1U << LISTENS | 1U << CLOSED, .udiag_show = UDIAG_SHOW_NAME | UDIAG_SHOW_UID },
	};
	_Alignas(struct nlmsghdr) char answer[32768];
	struct nlmsghdr *message;
	uid_t owner = NONE;
	bool ended = false;
	ssize_t got;
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

	ended = fd < 0 || send(fd, &question, sizeof(question), 0) < 0;
	while (!ended && owner == NONE && (got = recv(fd, answer, sizeof(answer), 0)) > 0) {
		for (message = (struct nlmsghdr *)answer; !ended && owner == NONE && NLMSG_OK(message, got); message = NLMSG_NEXT(message, got)) {
			ended = message->nlmsg_type == NLMSG_DONE || message->nlmsg_type == NLMSG_ERROR;
			owner = ended ? NONE : owner_in(message);
		}
	}
	if (fd >= 0)
		close(fd);
	return owner;
}

bool stranger_has_name(void)
{
	const uid_t owner = name_owner();

	return owner != NONE && !is_believed(owner);
}

/* The process that began to listen; another one may go on with its socket. 0: it can't be asked. */
static int process_that_listens(void)
{
	struct sockaddr_un address;
	struct ucred peer = { 0 };
	socklen_t length = abstract_name(&address, CONTROL_NAME), peer_length = sizeof(peer);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, length) == 0)
		getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_length);
	if (fd >= 0)
		close(fd);
	return (int)peer.pid;
}

void stranger_tell(const char *consequence)
{
	const uid_t owner = name_owner();
	const int process = process_that_listens();
	char user[40] = "another user", began[60] = "";

	if (owner != NONE)
		snprintf(user, sizeof(user), "user %u", owner);
	if (process > 0)
		snprintf(began, sizeof(began), " (process %d began to listen)", process);
	log_line("a program of %s has its name (@" CONTROL_NAME ") in this network namespace%s: end that program, which root sees by"
		 " `ss -xap src @" CONTROL_NAME "`. %s", user, began, consequence);
}
