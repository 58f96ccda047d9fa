#include "fds.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#include "../protocol.h"
#include "real.h"

#define KEPT 16384

/* inode * 2 + answer, in one word so that threads never see halves of two; 0: nothing known */
static unsigned long known[KEPT];

static bool ask_kernel(int fd)
{
	static const char prefix[] = SOCKET_NAME_PREFIX;
	struct sockaddr_un name;
	socklen_t length = sizeof(name);

	return real()->getpeername(fd, (struct sockaddr *)&name, &length) == 0 && name.sun_family == AF_UNIX &&
	       length > offsetof(struct sockaddr_un, sun_path) + sizeof(prefix) && name.sun_path[0] == '\0' &&
	       memcmp(name.sun_path + 1, prefix, sizeof(prefix) - 1) == 0;
}

bool fd_is_sctp(int fd)
{
	int saved = errno;
	struct stat status;
	unsigned long word;
	bool answer = false;

	if (fd < 0 || fstat(fd, &status) < 0 || !S_ISSOCK(status.st_mode)) {
		errno = saved;
		return false;
	}
	word = fd < KEPT ? __atomic_load_n(&known[fd], __ATOMIC_RELAXED) : 0;
	if (word >> 1 == status.st_ino)
		return word & 1;
	answer = ask_kernel(fd);
	/* An unconnected socket can still become one's own AF_UNIX client, but never an SCTP socket: those come connected. */
	if (fd < KEPT)
		__atomic_store_n(&known[fd], (unsigned long)status.st_ino << 1 | answer, __ATOMIC_RELAXED);
	errno = saved;
	return answer;
}

unsigned long fd_inode(int fd)
{
	unsigned long word = fd >= 0 && fd < KEPT ? __atomic_load_n(&known[fd], __ATOMIC_RELAXED) : 0;
	struct stat status;

	if (word != 0)
		return word >> 1;
	return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

bool fd_is_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && flags & O_NONBLOCK;
}
