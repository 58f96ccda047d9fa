/* The functions programs call. Each is the C library's own for descriptors that aren't SCTP sockets. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../protocol.h"
#include "channel.h"
#include "linux_headers.h"
#include "fds.h"
#include "memory.h"
#include "sctp.h"
#include "shim.h"
#include "real.h"

#define SENDFILE_PART 16384 /* bytes */

static bool is_sctp(int domain, int type, int protocol)
{
	int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);

	return (domain == AF_INET || domain == AF_INET6) &&
	       ((protocol == IPPROTO_SCTP && (kind == SOCK_STREAM || kind == SOCK_SEQPACKET)) ||
		(protocol == 0 && kind == SOCK_SEQPACKET));
}

/* lksctp-tools' withsctp makes SCTP of TCP, and calls the C library past this one: so it is done here when its library is loaded, too. */
static bool is_with_sctp(void)
{
	static int answer; /* 0: not known yet */

	if (answer == 0)
		answer = dlsym(RTLD_DEFAULT, "_sctp_load_libs") != NULL ? 1 : -1;
	return answer > 0;
}

EXPORT int socket(int domain, int type, int protocol)
{
	struct exchange exchange = { .request = { .operation = OP_SOCKET,
						  .argument = { domain, type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC) } } };

	if ((type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_STREAM && (domain == AF_INET || domain == AF_INET6) && is_with_sctp())
		protocol = IPPROTO_SCTP;
	if (!is_sctp(domain, type, protocol))
		return real()->socket(domain, type, protocol);
	return channel_call(-1, &exchange) < 0 ? -1 : sctp_take_descriptor(exchange.descriptor, type);
}

/* The size of the address that it holds; 0 and errno: none. */
static socklen_t address_size(const struct sockaddr *address, socklen_t length)
{
	if (length > 0 && length <= sizeof(struct sockaddr_storage) && !memory_readable(address, length)) {
		errno = EFAULT;
		return 0;
	}
	if (address == NULL || length < sizeof(struct sockaddr_in) || length > sizeof(struct sockaddr_storage)) {
		errno = EINVAL;
		return 0;
	}
	if (address->sa_family == AF_INET)
		return sizeof(struct sockaddr_in);
	return length < sizeof(struct sockaddr_in6) ? length : sizeof(struct sockaddr_in6);
}

EXPORT int bind(int fd, const struct sockaddr *address, socklen_t length)
{
	struct exchange exchange = { .request = { .operation = OP_BIND }, .address = address, .address_length = length };

	if (!fd_is_sctp(fd))
		return real()->bind(fd, address, length);
	exchange.address_length = address_size(address, length);
	return exchange.address_length == 0 ? -1 : channel_call(fd, &exchange);
}

EXPORT int listen(int fd, int backlog)
{
	struct exchange exchange = { .request = { .operation = OP_LISTEN, .argument = { backlog } } };

	return fd_is_sctp(fd) ? channel_call(fd, &exchange) : shim_listen(fd, backlog);
}

static int sctp_accept(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
	int listening = 0, type = 0, result, saved = errno;
	socklen_t size = sizeof(int);
	struct sockaddr_in6 peer;
	struct exchange exchange = { .request = { .operation = OP_ACCEPT }, .result = (char *)&peer,
				     .result_room = sizeof(peer) };
	socklen_t got;

	if ((address != NULL && memory_check_name(address, length) < 0) || channel_reserve_descriptor(&exchange) < 0)
		return -1;
	if (sctp_get_option(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) < 0 ||
	    sctp_get_option(fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0)
		goto failed;
	if (type != SOCK_STREAM || !listening) {
		errno = type != SOCK_STREAM ? EOPNOTSUPP : EINVAL;
		goto failed;
	}
	do {
		if (channel_reserve_descriptor(&exchange) < 0)
			return -1;
		if (sctp_wait_connection(fd) < 0)
			goto failed;
		result = channel_call(fd, &exchange);
	} while (result < 0 && errno == ECONNABORTED); /* another process has it */
	if (result < 0)
		return -1;
	if (address != NULL && length != NULL) {
		got = exchange.reply.address_length;
		memcpy(address, &peer, got < *length ? got : *length);
		*length = got;
	}
	errno = saved;
	return sctp_take_descriptor(exchange.descriptor, flags);
failed:
	channel_free_reserved(&exchange);
	return -1;
}

EXPORT int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
	return fd_is_sctp(fd) ? sctp_accept(fd, address, length, flags) : shim_accept(fd, address, length, flags);
}

EXPORT int accept(int fd, struct sockaddr *address, socklen_t *length)
{
	return accept4(fd, address, length, 0);
}

EXPORT int connect(int fd, const struct sockaddr *address, socklen_t length)
{
	if (!fd_is_sctp(fd))
		return shim_connect(fd, address, length);
	if (length >= sizeof(address->sa_family) && length <= sizeof(struct sockaddr_storage) && memory_readable(address, length) &&
	    address->sa_family == AF_UNSPEC)
		return fail(EOPNOTSUPP);
	length = address_size(address, length);
	return length == 0 ? -1 : sctp_connect_to(fd, address, length, NULL);
}

EXPORT int shutdown(int fd, int how)
{
	struct exchange exchange = { .request = { .operation = OP_SHUTDOWN, .argument = { how } } };

	return fd_is_sctp(fd) ? channel_call(fd, &exchange) : real()->shutdown(fd, how);
}

EXPORT int setsockopt(int fd, int level, int option, const void *value, socklen_t length)
{
	if (!fd_is_sctp(fd))
		return shim_set_option(fd, level, option, value, length);
	if (level == IPPROTO_TCP && is_with_sctp() && option == TCP_NODELAY) {
		level = IPPROTO_SCTP;
		option = SCTP_NODELAY;
	}
	return sctp_set_option(fd, level, option, value, length);
}

EXPORT int getsockopt(int fd, int level, int option, void *value, socklen_t *length)
{
	return fd_is_sctp(fd) ? sctp_get_option(fd, level, option, value, length)
			      : shim_get_option(fd, level, option, value, length);
}

EXPORT int getsockname(int fd, struct sockaddr *name, socklen_t *length)
{
	return fd_is_sctp(fd) ? sctp_name(fd, OP_GETSOCKNAME, name, length) : shim_name(fd, OP_GETSOCKNAME, name, length);
}

EXPORT int getpeername(int fd, struct sockaddr *name, socklen_t *length)
{
	return fd_is_sctp(fd) ? sctp_name(fd, OP_GETPEERNAME, name, length) : shim_name(fd, OP_GETPEERNAME, name, length);
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	const uint64_t known = fd_known(fd);

	if (!known_is_sctp(known))
		return real()->sendmsg(fd, message, flags);
	return memory_check_message(message, false) < 0 ? -1 : sctp_send(fd, known, message, flags);
}

static ssize_t send_bytes(int fd, uint64_t known, const void *data, size_t length, int flags, const struct sockaddr *to, socklen_t to_length)
{
	struct iovec vector = { (void *)(uintptr_t)data, length };
	struct msghdr message = { .msg_name = (void *)(uintptr_t)to, .msg_namelen = to_length, .msg_iov = &vector,
				  .msg_iovlen = 1 };

	return to != NULL && memory_check_message(&message, false) < 0 ? -1 : sctp_send(fd, known, &message, flags);
}

EXPORT ssize_t sendto(int fd, const void *data, size_t length, int flags, const struct sockaddr *to, socklen_t to_length)
{
	const uint64_t known = fd_known(fd);

	return known_is_sctp(known) ? send_bytes(fd, known, data, length, flags, to, to_length)
				    : real()->sendto(fd, data, length, flags, to, to_length);
}

EXPORT ssize_t send(int fd, const void *data, size_t length, int flags)
{
	return sendto(fd, data, length, flags, NULL, 0);
}

EXPORT ssize_t write(int fd, const void *data, size_t length)
{
	const uint64_t known = fd_known(fd);

	return known_is_sctp(known) ? send_bytes(fd, known, data, length, 0, NULL, 0) : real()->write(fd, data, length);
}

EXPORT ssize_t writev(int fd, const struct iovec *vector, int count)
{
	const uint64_t known = fd_known(fd);
	struct msghdr message = { .msg_iov = (struct iovec *)(uintptr_t)vector, .msg_iovlen = count > 0 ? (size_t)count : 0 };

	if (!known_is_sctp(known))
		return real()->writev(fd, vector, count);
	return memory_check_message(&message, false) < 0 ? -1 : sctp_send(fd, known, &message, 0);
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	const uint64_t known = fd_known(fd);

	if (!known_is_sctp(known))
		return real()->recvmsg(fd, message, flags);
	return memory_check_message(message, true) < 0 ? -1 : sctp_receive(fd, known, message, flags);
}

static ssize_t receive_bytes(int fd, uint64_t known, void *data, size_t room, int flags, struct sockaddr *from, socklen_t *from_length)
{
	struct iovec vector = { data, room };
	struct msghdr message = { .msg_name = from, .msg_iov = &vector, .msg_iovlen = 1 };
	ssize_t got;

	if (from != NULL && from_length != NULL && memory_check_name(from, from_length) < 0)
		return -1;
	message.msg_namelen = from != NULL && from_length != NULL ? *from_length : 0;
	got = sctp_receive(fd, known, &message, flags);
	if (got >= 0 && from != NULL && from_length != NULL)
		*from_length = message.msg_namelen;
	return got;
}

EXPORT ssize_t recvfrom(int fd, void *data, size_t room, int flags, struct sockaddr *from, socklen_t *from_length)
{
	const uint64_t known = fd_known(fd);

	return known_is_sctp(known) ? receive_bytes(fd, known, data, room, flags, from, from_length)
				    : real()->recvfrom(fd, data, room, flags, from, from_length);
}

EXPORT ssize_t recv(int fd, void *data, size_t room, int flags)
{
	return recvfrom(fd, data, room, flags, NULL, NULL);
}

EXPORT ssize_t read(int fd, void *data, size_t room)
{
	const uint64_t known = fd_known(fd);

	return known_is_sctp(known) ? receive_bytes(fd, known, data, room, 0, NULL, NULL) : real()->read(fd, data, room);
}

EXPORT ssize_t readv(int fd, const struct iovec *vector, int count)
{
	const uint64_t known = fd_known(fd);
	struct msghdr message = { .msg_iov = (struct iovec *)(uintptr_t)vector, .msg_iovlen = count > 0 ? (size_t)count : 0 };

	if (!known_is_sctp(known))
		return real()->readv(fd, vector, count);
	return memory_check_message(&message, false) < 0 ? -1 : sctp_receive(fd, known, &message, 0);
}

EXPORT int sendmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags)
{
	ssize_t sent = 0;
	unsigned int i;

	if (!fd_is_sctp(fd))
		return real()->sendmmsg(fd, messages, count, flags);
	count = count < IOV_MAX ? count : IOV_MAX; /* as in Linux */
	if (!memory_writable(messages, count * sizeof(*messages)))
		return fail(EFAULT);
	for (i = 0; i < count && (sent = sendmsg(fd, &messages[i].msg_hdr, flags)) >= 0; i++)
		messages[i].msg_len = (unsigned int)sent;
	return i == 0 && sent < 0 ? -1 : (int)i;
}

EXPORT int recvmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags, struct timespec *timeout)
{
	const uint32_t began_ms = clock_ms();
	ssize_t got = 0;
	unsigned int i;

	if (!fd_is_sctp(fd))
		return real()->recvmmsg(fd, messages, count, flags, timeout);
	count = count < IOV_MAX ? count : IOV_MAX;
	if (!memory_writable(messages, count * sizeof(*messages)) || (timeout != NULL && !memory_readable(timeout, sizeof(*timeout))))
		return fail(EFAULT);
	for (i = 0; i < count; i++) {
		got = recvmsg(fd, &messages[i].msg_hdr, (flags & ~MSG_WAITFORONE) | (i > 0 && flags & MSG_WAITFORONE ? MSG_DONTWAIT : 0));
		if (got < 0)
			break;
		messages[i].msg_len = (unsigned int)got;
		if (timeout != NULL && clock_ms() - began_ms >= (uint64_t)timeout->tv_sec * 1000 + (uint64_t)timeout->tv_nsec / 1000000)
			flags |= MSG_WAITFORONE; /* it is looked at after each message only, as in Linux */
	}
	return i == 0 && got < 0 ? -1 : (int)i;
}

/* One message a call, of a part: the program asks for the rest, as it has to. */
static ssize_t send_part(int to, int from, off64_t *offset, size_t count)
{
	char bytes[SENDFILE_PART];
	off64_t at = offset != NULL && memory_writable(offset, sizeof(*offset)) ? *offset : 0;
	ssize_t length;

	if (offset != NULL && !memory_writable(offset, sizeof(*offset)))
		return fail(EFAULT);
	if (offset == NULL && (at = lseek64(from, 0, SEEK_CUR)) < 0)
		return fail(EINVAL);
	length = pread64(from, bytes, count < sizeof(bytes) ? count : sizeof(bytes), at);
	if (length > 0)
		length = send_bytes(to, fd_known(to), bytes, (size_t)length, 0, NULL, 0);
	if (length > 0 && offset != NULL)
		*offset = at + length;
	if (length > 0 && offset == NULL)
		lseek64(from, at + length, SEEK_SET);
	return length;
}

EXPORT ssize_t sendfile(int to, int from, off_t *offset, size_t count)
{
	return fd_is_sctp(to) ? send_part(to, from, offset, count) : real()->sendfile(to, from, offset, count);
}

EXPORT ssize_t sendfile64(int to, int from, off64_t *offset, size_t count)
{
	return fd_is_sctp(to) ? send_part(to, from, offset, count) : real()->sendfile64(to, from, offset, count);
}

EXPORT ssize_t splice(int from, off64_t *from_offset, int to, off64_t *to_offset, size_t length, unsigned int flags)
{
	return fd_is_sctp(from) || fd_is_sctp(to) ? fail(EINVAL) : real()->splice(from, from_offset, to, to_offset, length, flags);
}

/* The functions that fortified programs call instead. */
ssize_t __recv_chk(int fd, void *data, size_t room, size_t size, int flags);
ssize_t __recvfrom_chk(int fd, void *data, size_t room, size_t size, int flags, struct sockaddr *from, socklen_t *from_length);
ssize_t __read_chk(int fd, void *data, size_t room, size_t size);

EXPORT ssize_t __recv_chk(int fd, void *data, size_t room, size_t size, int flags)
{
	if (room > size)
		abort();
	return recv(fd, data, room, flags);
}

EXPORT ssize_t __recvfrom_chk(int fd, void *data, size_t room, size_t size, int flags, struct sockaddr *from,
			      socklen_t *from_length)
{
	if (room > size)
		abort();
	return recvfrom(fd, data, room, flags, from, from_length);
}

EXPORT ssize_t __read_chk(int fd, void *data, size_t room, size_t size)
{
	if (room > size)
		abort();
	return read(fd, data, room);
}
