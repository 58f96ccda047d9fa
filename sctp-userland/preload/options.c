/* Socket options. Those below 100 go to sctpd; bindx, connectx, peeloff and the address lists are calls of their own. */
#include "sctp.h"

#include <errno.h>
#include <fcntl.h>
#include "linux_headers.h"
#include <stddef.h>
#include <string.h>

#include "channel.h"
#include "fds.h"
#include "memory.h"
#include "real.h"

static int bindx(int fd, int how, const void *addresses, socklen_t length)
{
	struct exchange exchange = { .request = { .operation = OP_BINDX, .argument = { how } }, .address = addresses,
				     .address_length = length };

	if (length > ADDRESSES_MAX)
		return fail(EINVAL);
	return channel_call(fd, &exchange);
}

/* The options that the AF_UNIX descriptor keeps by itself: timeouts, REUSEADDR and the like. */
static int is_native(int level, int option)
{
	return level == SOL_SOCKET && option != SO_SNDBUF && option != SO_RCVBUF && option != SO_LINGER && option != SO_PEEK_OFF &&
	       option != SO_SNDBUFFORCE && option != SO_RCVBUFFORCE &&
	       option != SO_REUSEPORT && option != SO_ERROR && option != SO_TYPE && option != SO_DOMAIN && option != SO_PROTOCOL &&
	       option != SO_ACCEPTCONN;
}

int sctp_set_option(int fd, int level, int option, const void *value, socklen_t length)
{
	struct exchange exchange = { .request = { .operation = OP_SETSOCKOPT, .argument = { level, option } }, .data = value,
				     .data_length = length };
	int association = 0, saved = errno;

	if (is_native(level, option))
		return real()->setsockopt(fd, level, option, value, length);
	if (length <= OPTION_MAX && !memory_readable(value, length))
		return fail(EFAULT);
	if (level == SOL_SOCKET && option == SO_PEEK_OFF) /* it would count headers */
		return fail(EOPNOTSUPP);
	if (level == SOL_SOCKET && (option == SO_SNDBUFFORCE || option == SO_RCVBUFFORCE)) {
		if (geteuid() != 0)
			return fail(EPERM);
		exchange.request.argument[1] = option == SO_SNDBUFFORCE ? SO_SNDBUF : SO_RCVBUF;
	}
	if (level == IPPROTO_SCTP) {
		switch (option) {
		case SCTP_SOCKOPT_BINDX_ADD:
			return bindx(fd, 1, value, length);
		case SCTP_SOCKOPT_BINDX_REM:
			return bindx(fd, 2, value, length);
		case SCTP_SOCKOPT_CONNECTX_OLD:
			return sctp_connect_to(fd, value, length, NULL);
		case SCTP_SOCKOPT_CONNECTX:
			if (sctp_connect_to(fd, value, length, &association) < 0 && errno != EINPROGRESS)
				return -1;
			errno = saved;
			return association;
		default:
			break;
		}
	}
	if (length > OPTION_MAX)
		return fail(EINVAL);
	return channel_call(fd, &exchange);
}

int sctp_take_descriptor(int fd, int flags)
{
	if (flags & SOCK_NONBLOCK)
		fcntl(fd, F_SETFL, O_NONBLOCK);
	if (!(flags & SOCK_CLOEXEC))
		fcntl(fd, F_SETFD, 0);
	return fd;
}

static int peel_off(int fd, void *value, socklen_t length, bool has_flags)
{
	struct exchange exchange = { .request = { .operation = OP_PEELOFF } };
	sctp_peeloff_flags_arg_t argument = { 0 };
	const socklen_t size = has_flags ? sizeof(argument) : sizeof(argument.p_arg);

	if (length < size)
		return fail(EINVAL);
	memcpy(&argument, value, size);
	exchange.request.argument[0] = argument.p_arg.associd;
	if (channel_call(fd, &exchange) < 0)
		return -1;
	argument.p_arg.sd = sctp_take_descriptor(exchange.descriptor, (int)argument.flags);
	memcpy(value, &argument, size);
	return argument.p_arg.sd; /* Linux returns it so, and in the argument */
}

static int all_addresses(int fd, int operation, void *value, socklen_t *length)
{
	char addresses[ADDRESSES_MAX];
	struct sctp_getaddrs *list = value;
	struct exchange exchange = { .request = { .operation = (uint16_t)operation, .argument = { 1 } }, .result = addresses,
				     .result_room = sizeof(addresses) };

	if (*length < sizeof(*list))
		return fail(EINVAL);
	exchange.request.argument[1] = list->assoc_id;
	if (channel_call(fd, &exchange) < 0)
		return -1;
	if (exchange.reply.address_length > *length - sizeof(*list))
		return fail(ENOMEM);
	list->addr_num = (uint32_t)exchange.reply.result;
	memcpy(list->addrs, addresses, exchange.reply.address_length);
	*length = (socklen_t)exchange.reply.address_length; /* what is before them counts with the peer's only, as in Linux */
	if (operation == OP_GETPEERNAME)
		*length += (socklen_t)sizeof(*list);
	return 0;
}

/* {association, bytes, pointer}: in and out. */
static int connectx3(int fd, void *value, const socklen_t *length)
{
	struct sctp_getaddrs_old argument;
	int association = 0, result;

	if (*length < sizeof(argument))
		return fail(EINVAL);
	memcpy(&argument, value, sizeof(argument));
	if (argument.addr_num <= 0 || argument.addr_num > ADDRESSES_MAX)
		return fail(EINVAL);
	if (!memory_readable(argument.addrs, (size_t)argument.addr_num))
		return fail(EFAULT);
	result = sctp_connect_to(fd, argument.addrs, (size_t)argument.addr_num, &association);
	if (result == 0 || errno == EINPROGRESS) {
		argument.assoc_id = association;
		memcpy(value, &argument, sizeof(argument));
	}
	return result;
}

int sctp_get_option(int fd, int level, int option, void *value, socklen_t *length)
{
	struct exchange exchange = { .request = { .operation = OP_GETSOCKOPT, .argument = { level, option } }, .data = value,
				     .result = value };
	int error;

	if (is_native(level, option))
		return real()->getsockopt(fd, level, option, value, length);
	if (memory_check_name(value, length) < 0)
		return -1;
	if (level == SOL_SOCKET && option == SO_PEEK_OFF)
		return fail(EOPNOTSUPP);
	if (level == IPPROTO_SCTP) {
		switch (option) {
		case SCTP_SOCKOPT_PEELOFF:
			return peel_off(fd, value, *length, false);
		case SCTP_SOCKOPT_PEELOFF_FLAGS:
			return peel_off(fd, value, *length, true);
		case SCTP_GET_PEER_ADDRS:
			return all_addresses(fd, OP_GETPEERNAME, value, length);
		case SCTP_GET_LOCAL_ADDRS:
			return all_addresses(fd, OP_GETSOCKNAME, value, length);
		case SCTP_SOCKOPT_CONNECTX3:
			return connectx3(fd, value, length);
		default:
			break;
		}
	}
	exchange.data_length = *length < OPTION_MAX ? *length : OPTION_MAX;
	exchange.result_room = exchange.data_length;
	exchange.request.argument[2] = (int32_t)exchange.data_length;
	if (channel_call(fd, &exchange) < 0)
		return -1;
	*length = exchange.reply.data_length;
	if (level == SOL_SOCKET && option == SO_ERROR && *length == sizeof(error)) {
		memcpy(&error, value, sizeof(error));
		if (error != 0)
			sctp_forget_error(fd);
	}
	return 0;
}

int sctp_name(int fd, int operation, struct sockaddr *name, socklen_t *length)
{
	struct sockaddr_in6 full = { 0 };
	struct exchange exchange = { .request = { .operation = (uint16_t)operation }, .result = (char *)&full,
				     .result_room = sizeof(full) };
	socklen_t got;

	if (memory_check_name(name, length) < 0)
		return -1;
	if (channel_call(fd, &exchange) < 0)
		return -1;
	got = exchange.reply.address_length;
	memcpy(name, &full, got < *length ? got : *length);
	*length = got;
	return 0;
}
