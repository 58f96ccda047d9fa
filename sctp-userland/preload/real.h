/* The C library's own functions, behind those of the same names here. */
#ifndef REAL_H
#define REAL_H

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

#define REAL_FUNCTIONS(EACH)                                                                                                       \
	EACH(socket) EACH(bind) EACH(listen) EACH(accept4) EACH(connect) EACH(shutdown) EACH(setsockopt) EACH(getsockopt)          \
	EACH(getsockname) EACH(getpeername) EACH(sendmsg) EACH(sendto) EACH(recvmsg) EACH(recvfrom) EACH(read) EACH(write)         \
	EACH(readv) EACH(sendmmsg) EACH(recvmmsg) EACH(sendfile) EACH(sendfile64) EACH(splice)          \
	EACH(epoll_ctl) EACH(writev)

struct real {
#define MEMBER(name) __typeof__(name) *name;
	REAL_FUNCTIONS(MEMBER)
};

static inline int fail(int error)
{
	errno = error;
	return -1;
}

/* Look up at the first use, which may be before this library's constructor. */
const struct real *real(void);

#endif
