#include "listeners.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "bound.h"
#include "loop.h"
#include "shim.h"

#define LISTENS 10 /* a listener's state in /proc/net/tcp */
#define PER_TURN 64

/* The kernel tells of each TCP socket that ends. */
struct ended {
	struct nlmsghdr header;
	struct inet_diag_msg socket;
};

/* Mark the listeners that /proc lists: first of all. */
static void mark_listed(const char *path, bool v6)
{
	FILE *file = fopen(path, "re");
	char line[512], digits[33];
	unsigned int port, state, word;
	struct sctp_socket *s;
	int i;

	while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
		struct sockaddr_in6 name = { .sin6_family = v6 ? AF_INET6 : AF_INET };
		struct sockaddr_in *v4 = (struct sockaddr_in *)&name;

		if (sscanf(line, " %*u: %32[0-9A-F]:%X %*[0-9A-F]:%*X %X", digits, &port, &state) != 3)
			continue; /* the headline */
		if (state != LISTENS)
			break;
		for (i = v6 ? 3 : 0; i >= 0; i--) { /* words in this machine's order */
			sscanf(digits + 8 * i, "%8X", &word);
			digits[8 * i] = '\0';
			memcpy(v6 ? (char *)&name.sin6_addr + 4 * i : (char *)&v4->sin_addr, &word, sizeof(word));
		}
		name.sin6_port = htons((uint16_t)port);
		for (s = sockets_first(); s != NULL; s = s->next)
			if (s->shim != NULL && s->shim->listens && shim_same_end(&s->shim->name, &name))
				s->shim->refused = false;
	}
	if (file != NULL)
		fclose(file);
}

void listeners_look(void)
{
	struct sctp_socket *s;
	bool some = false;

	for (s = sockets_first(); s != NULL; s = s->next)
		if (s->shim != NULL && s->shim->listens)
			s->shim->refused = some = true;
	if (!some)
		return;
	mark_listed("/proc/net/tcp", false);
	mark_listed("/proc/net/tcp6", true);
	for (s = sockets_first(); s != NULL; s = s->next)
		if (s->shim != NULL && s->shim->listens && s->shim->refused) {
			usrsctp_listen(s->so, 0);
			shim_let_go(s->shim, false);
		}
}

static bool is_one(uint16_t port)
{
	struct sctp_socket *s;

	for (s = sockets_first(); s != NULL; s = s->next)
		if (s->shim != NULL && s->shim->listens && address_port((struct sockaddr *)&s->shim->name) == port)
			return true;
	return false;
}

static void ready(struct watch *watch, uint32_t)
{
	struct ended ended;
	bool looks = false;
	ssize_t length;
	int i;

	for (i = 0; i < PER_TURN; i++) {
		length = recv(watch->fd, &ended, sizeof(ended), MSG_DONTWAIT);
		if (length < 0 && errno != ENOBUFS)
			break;
		looks |= length < 0 /* some were lost */ || (length == sizeof(ended) && is_one(ntohs(ended.socket.id.idiag_sport)));
	}
	if (looks)
		listeners_look();
}

void listeners_watch(void)
{
	static struct watch watch = { -1, EPOLLIN, ready };
	static struct sock_filter unconnected[] = {
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, offsetof(struct ended, socket.id.idiag_dport)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, UINT16_MAX),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	static const struct sock_fprog filter = { sizeof(unconnected) / sizeof(unconnected[0]), unconnected };
	const struct sockaddr_nl groups = { .nl_family = AF_NETLINK,
					    .nl_groups = 1U << (SKNLGRP_INET_TCP_DESTROY - 1) | 1U << (SKNLGRP_INET6_TCP_DESTROY - 1) };

	if (watch.fd >= 0)
		return;
	watch.fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	if (watch.fd < 0)
		return; /* listeners_look() finds them all the same, later */
	setsockopt(watch.fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter));
	if (bind(watch.fd, (const struct sockaddr *)&groups, sizeof(groups)) < 0 || loop_add(&watch) < 0) {
		close(watch.fd);
		watch.fd = -1;
	}
}
