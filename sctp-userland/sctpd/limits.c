#include "limits.h"

#include <linux/sockios.h>
#include <malloc.h>
#include <sys/ioctl.h>

#include "loop.h"
#include "sockets.h"

#define STEP (1024 * 1024) /* bytes after which it is measured again */
#define TELL_MS 60000
#define AGAIN_MS 50	   /* ... and while it is used up */

struct limits limits = { .sockets = 16384, .connections = 4096, .memory = 512 * 1024 * 1024 };

static uint64_t noted, measured_ms;
static bool reached;

/* Data that clients have not read yet lies with the kernel. */
static uint64_t unread(void)
{
	const struct sctp_socket *s;
	uint64_t all = 0;
	int bytes;

	for (s = sockets_first(); s != NULL; s = s->next)
		if (ioctl(s->watch.fd, SIOCOUTQ, &bytes) == 0)
			all += (uint64_t)bytes;
	return all;
}

static void measure(void)
{
	struct mallinfo2 heap = mallinfo2();
	const bool was_reached = reached;

	noted = 0;
	measured_ms = loop_now_ms();
	reached = heap.uordblks + heap.hblkhd + unread() > limits.memory;
	if (reached && !was_reached)
		log_line("the memory for all (--memory-limit) is used up: nothing more is queued until some is free");
	if (was_reached && !reached)
		sockets_unblock_all();
}

bool limits_refuse(enum limit which, bool refuses)
{
	static const char *const told[] = {
		[LIMIT_SOCKETS] = "there are as many sockets as may be (--socket-limit): socket(), accept() and peeling off fail with EMFILE",
		[LIMIT_CONNECTIONS] = "as many threads use sockets as may (--connection-limit): calls of others fail with EUSERS",
		[LIMIT_DESCRIPTORS] = "no descriptors are left, one for each socket and each thread (ulimit -n, LimitNOFILE=): new ones fail with EMFILE",
		[LIMIT_ADDRESSES] = "as many addresses that stand on no interface (127.0.0.2) are bound as may be (1024): bind() of others fails with EADDRNOTAVAIL",
	};
	static uint64_t told_ms[sizeof(told) / sizeof(told[0])];

	if (refuses && (told_ms[which] == 0 || loop_now_ms() - told_ms[which] >= TELL_MS)) {
		told_ms[which] = loop_now_ms();
		log_line("%s", told[which]);
	}
	return refuses;
}

bool limits_reached(void)
{
	return reached;
}

void limits_note(uint64_t bytes)
{
	noted += bytes;
	if (noted >= STEP && loop_now_ms() != measured_ms)
		measure();
}

void limits_run(void)
{
	if (reached && loop_now_ms() - measured_ms >= AGAIN_MS)
		measure();
}

int limits_next_ms(void)
{
	return reached ? AGAIN_MS : -1;
}
