#include "memory.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "real.h"

#define SMALLEST_PAGE 4096
#define NO_SUCH_WAY 77 /* of changing a signal mask: the kernel copies the new mask in, then refuses */
#define WORD 8

/* One word of the page: it may be shorter than what is asked about, but no page is half readable. */
static bool is_readable(uintptr_t at)
{
	return syscall(SYS_rt_sigprocmask, NO_SUCH_WAY, at & ~(uintptr_t)(WORD - 1), NULL, WORD) == 0 || errno != EFAULT;
}

/* "Or" a word with nothing: it is written, and stays as it is, whoever changes it meanwhile. */
static bool is_writable(uintptr_t at)
{
	uint32_t nobody_waits = 0;

	return syscall(SYS_futex, &nobody_waits, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 0, NULL, at & ~(uintptr_t)3,
		       FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 0)) >= 0 ||
	       errno != EFAULT;
}

static bool is_all(const void *start, size_t size, bool (*is_fine)(uintptr_t))
{
	uintptr_t at = (uintptr_t)start, last = at + size - 1;
	int saved = errno;
	bool fine = size == 0 || (last >= at && is_fine(at));

	if (size == 0)
		return true;
	for (at |= SMALLEST_PAGE - 1; fine && at < last; at += SMALLEST_PAGE)
		fine = is_fine(at + 1);
	errno = saved;
	return fine;
}

bool memory_readable(const void *at, size_t size)
{
	return is_all(at, size, is_readable);
}

bool memory_writable(const void *at, size_t size)
{
	return is_all(at, size, is_writable);
}

int memory_check_message(const struct msghdr *message, bool is_received)
{
	bool (*const holds)(const void *, size_t) = is_received ? memory_writable : memory_readable;

	if (!holds(message, sizeof(*message)))
		errno = EFAULT;
	else if (message->msg_iovlen > IOV_MAX)
		errno = EMSGSIZE;
	else if (!memory_readable(message->msg_iov, message->msg_iovlen * sizeof(struct iovec)) ||
		 (message->msg_name != NULL && !holds(message->msg_name, message->msg_namelen)) ||
		 (message->msg_control != NULL && !holds(message->msg_control, message->msg_controllen)))
		errno = EFAULT;
	else
		return 0;
	return -1;
}

int memory_check_name(const struct sockaddr *name, const socklen_t *length)
{
	if (!memory_readable(length, sizeof(*length)) || !memory_writable(length, sizeof(*length)))
		return fail(EFAULT);
	if (*length > INT_MAX)
		return fail(EINVAL);
	if (!memory_writable(name, *length))
		return fail(EFAULT);
	return 0;
}
