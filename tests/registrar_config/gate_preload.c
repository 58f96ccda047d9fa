/* The preloaded gate between rspregistrar, which this program is, and a system that fails: gate_preload_system.c. */
#include <netinet/in.h>
#include <netinet/sctp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "gate_preload_system.h"

#define MUST(what)                                                                                                     \
	do {                                                                                                           \
		if (!(what)) {                                                                                         \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);                             \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

/* A handle resolution of the pool "pool". */
static const uint8_t question[] = { 5, 0, 0, 12, 0, 9, 0, 8, 'p', 'o', 'o', 'l' };

/* Whether the message that came reaches rspregistrar. */
static bool comes_through(void)
{
	char data[256], control[256];
	struct iovec piece = { data, sizeof(data) };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	const ssize_t length = recvmsg(3, &message, 0);

	MUST(length > 0);
	MUST(message.msg_flags & MSG_NOTIFICATION || memcmp(data, question, sizeof(question)) == 0);
	return !(message.msg_flags & MSG_NOTIFICATION);
}

int main(void)
{
	struct sockaddr *addresses = NULL;

	memcpy(below.bytes, question, sizeof(question));
	below.length = sizeof(question);

	/* The peer's addresses can't be looked up at once: they are asked for again with its next message. */
	below.failures = 1;
	MUST(!comes_through());
	MUST(comes_through());
	MUST(comes_through());

	/* rspregistrar gets no pointer to addresses that were freed. */
	below.is_unconfirmed = true;
	MUST(sctp_getpaddrs(3, 7, &addresses) == 0);
	MUST(addresses == NULL);
	below.is_unconfirmed = false;
	MUST(sctp_getpaddrs(3, 7, &addresses) == 1);
	MUST(addresses != NULL);
	sctp_freepaddrs(addresses);
	puts("right");
	return 0;
}
