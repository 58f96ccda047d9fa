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
	const struct sctp_assoc_change restart = {
		.sac_type = SCTP_ASSOC_CHANGE,
		.sac_length = sizeof(restart),
		.sac_state = SCTP_RESTART,
		.sac_assoc_id = 7,
	};
	struct sockaddr *addresses = NULL;

	memcpy(below.bytes, question, sizeof(question));
	below.length = sizeof(question);

	/* The peer's addresses can't be looked up at once: they are asked for again with its next message. */
	below.failures = 1;
	MUST(!comes_through());
	MUST(comes_through());
	MUST(comes_through());

	/* An address that was confirmed is not asked about again. */
	below.asked = 0;
	MUST(sctp_getpaddrs(3, 7, &addresses) == 1);
	MUST(addresses != NULL && below.asked == 0);
	sctp_freepaddrs(addresses);

	/* It is when the association began anew. rspregistrar gets no pointer to addresses that were freed. */
	memcpy(below.bytes, &restart, sizeof(restart));
	below.length = sizeof(restart);
	below.is_notification = true;
	comes_through();
	below.is_unconfirmed = true;
	MUST(sctp_getpaddrs(3, 7, &addresses) == 0);
	MUST(addresses == NULL && below.asked == 1);
	puts("right");
	return 0;
}
