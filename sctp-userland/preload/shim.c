#include "shim.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../protocol.h"
#include "../shim/rules.h"
#include "channel.h"
#include "fds.h"
#include "memory.h"
#include "real.h"
#include "sctp.h"

#define SEND_BUFFER 212992 /* as sctpd's outbound.c has it */
#define DESCRIPTORS 65536
#define KEPT 1024
#define SEGMENT 1448 /* bytes: what TCP_MAXSEG answers */
#define AO_ADD_KEY 38 /* TCP_AO_ADD_KEY, Linux 6.7 */

static struct rules *rules; /* NULL: none */

/* Kept by descriptor for connect(): the registration in an epoll set, which would be lost with the TCP socket, so that the program waits for ever;
 * the inode of a socket that was asked for what only TCP has. */
static struct registration {
	int set;
	struct epoll_event event;
	ino_t stays_tcp;
} *registrations;

__attribute__((constructor)) static void start(void)
{
	const int saved = errno;
	const char *path = getenv(RULES_VARIABLE);
	FILE *null = path != NULL ? fopen("/dev/null", "we") : NULL;
	struct rules *read = null != NULL ? malloc(sizeof(*read)) : NULL;

	if (read != NULL && rules_read(read, path, null) == 0) /* sctp-run has told mistakes */
		rules = read;
	else
		free(read);
	if (null != NULL)
		fclose(null);
	if (rules != NULL)
		registrations = calloc(DESCRIPTORS, sizeof(*registrations));
	errno = saved;
}

EXPORT int epoll_ctl(int set, int operation, int fd, struct epoll_event *event)
{
	const int result = real()->epoll_ctl(set, operation, fd, event);

	if (result == 0 && registrations != NULL && fd >= 0 && fd < DESCRIPTORS && (operation == EPOLL_CTL_ADD || operation == EPOLL_CTL_MOD))
		registrations[fd].set = set, registrations[fd].event = *event;
	return result;
}

static int number_of(int fd, int level, int option)
{
	int value = 0;
	socklen_t length = sizeof(value);

	return real()->getsockopt(fd, level, option, &value, &length) == 0 ? value : 0;
}

static bool is_tcp(int fd)
{
	return rules != NULL && number_of(fd, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP;
}

static ino_t inode_of(int fd)
{
	struct stat status;

	return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

/* Whether SCTP in TCP's place would silently lack what this option asks for: a signature, say. */
static bool is_of_tcp_only(int level, int option)
{
	return level == IPPROTO_TCP && (option == TCP_MD5SIG || option == TCP_MD5SIG_EXT || option == AO_ADD_KEY || option == TCP_REPAIR ||
					option == TCP_ULP || option == TCP_FASTOPEN_CONNECT);
}

/* Also one that is tied to a device, or to routes by a mark: sctpd's packets have neither. */
static bool stays_tcp(int fd)
{
	return number_of(fd, SOL_SOCKET, SO_BINDTOIFINDEX) != 0 || number_of(fd, SOL_SOCKET, SO_MARK) != 0 ||
	       (registrations != NULL && fd < DESCRIPTORS && registrations[fd].stays_tcp != 0 && registrations[fd].stays_tcp == inode_of(fd));
}

static bool is_any(const struct sockaddr_in6 *name)
{
	return name->sin6_family == AF_INET ? ((const struct sockaddr_in *)name)->sin_addr.s_addr == INADDR_ANY :
					      (bool)IN6_IS_ADDR_UNSPECIFIED(&name->sin6_addr);
}

static bool is_loopback(const struct sockaddr_in6 *name)
{
	return name->sin6_family == AF_INET ? ntohl(((const struct sockaddr_in *)name)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET :
					      IN6_IS_ADDR_LOOPBACK(&name->sin6_addr) ||
						      (IN6_IS_ADDR_V4MAPPED(&name->sin6_addr) && name->sin6_addr.s6_addr[12] == IN_LOOPBACKNET);
}

static size_t size_of(const struct sockaddr_in6 *name)
{
	return name->sin6_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

static bool same_address(const struct sockaddr_in6 *first, const struct sockaddr_in6 *second)
{
	return first->sin6_family == second->sin6_family &&
	       (first->sin6_family == AF_INET ? ((const struct sockaddr_in *)first)->sin_addr.s_addr == ((const struct sockaddr_in *)second)->sin_addr.s_addr :
						(bool)IN6_ARE_ADDR_EQUAL(&first->sin6_addr, &second->sin6_addr));
}

/* The addresses of the rules that a socket of this name uses besides its own, packed: those of its family, if its own is among them or any is.
 * Return their length. */
static size_t more_addresses(const struct sockaddr_in6 *name, char *packed)
{
	bool is_there = is_any(name);
	size_t length = 0;
	int i;

	for (i = 0; i < rules->address_count; i++)
		is_there |= same_address(name, &rules->addresses[i]);
	for (i = 0; is_there && i < rules->address_count; i++)
		if (rules->addresses[i].sin6_family == name->sin6_family && !same_address(name, &rules->addresses[i])) {
			memcpy(packed + length, &rules->addresses[i], size_of(name));
			length += size_of(name);
		}
	return length;
}

/* The program's binding, and the addresses of the rules. Return whether the association may begin so. */
static bool bind_as(int pair, const struct sockaddr_in6 *name)
{
	char packed[sizeof(rules->addresses)];
	const size_t more = more_addresses(name, packed);
	struct sockaddr_in6 own = *name;
	struct exchange bound = { .request = { .operation = OP_BIND }, .address = &own, .address_length = size_of(name) };
	struct exchange added = { .request = { .operation = OP_BINDX, .argument = { 1 } }, .address = packed, .address_length = more };

	if (is_any(name) && more > 0) {
		memcpy(&own, packed, size_of(name));
		own.sin6_port = name->sin6_port;
		added.address = packed + size_of(name);
		added.address_length = more - size_of(name);
	}
	if (is_any(&own) && own.sin6_port == 0)
		return true;
	if (channel_call(pair, &bound) < 0) {
		own.sin6_port = 0; /* another association may have that one */
		if (channel_call(pair, &bound) < 0)
			return false;
	}
	if (added.address_length > 0)
		channel_call(pair, &added); /* an address that isn't there just now */
	return true;
}

/* Put the pair's end in the place of the TCP socket. Return 0, -1 and errno: nothing has changed. */
static int swap(int fd, int pair, int flags)
{
	static const int kept[] = { SO_RCVTIMEO, SO_SNDTIMEO, SO_KEEPALIVE, SO_REUSEADDR };
	const struct registration *registration = fd < DESCRIPTORS && registrations != NULL ? &registrations[fd] : NULL;
	struct epoll_event event = { 0 };
	const int size = SEND_BUFFER;
	struct linger linger = { 0 };
	socklen_t length = sizeof(linger);
	int result;
	size_t i;

	real()->setsockopt(pair, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	for (i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
		struct timeval value = { 0 }; /* the largest of them */
		socklen_t value_length = sizeof(value);

		if (real()->getsockopt(fd, SOL_SOCKET, kept[i], &value, &value_length) == 0)
			real()->setsockopt(pair, SOL_SOCKET, kept[i], &value, value_length);
	}
	if (real()->getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &length) == 0 && linger.l_onoff)
		sctp_set_option(pair, SOL_SOCKET, SO_LINGER, &linger, length);
	if (registration != NULL && registration->event.events != 0 && real()->epoll_ctl(registration->set, EPOLL_CTL_DEL, fd, &event) == 0)
		event = registration->event;
	fcntl(pair, F_SETFL, flags & O_NONBLOCK);
	result = dup3(pair, fd, fcntl(fd, F_GETFD) & FD_CLOEXEC ? O_CLOEXEC : 0);
	if (event.events != 0)
		real()->epoll_ctl(registration->set, EPOLL_CTL_ADD, fd, &event);
	close(pair);
	return result < 0 ? -1 : 0;
}

/* Whether it becomes writable in time; a signal doesn't count. */
static bool wait_connected(int pair, int wait_ms)
{
	const uint32_t began_ms = clock_ms();
	struct pollfd state = { pair, POLLOUT, 0 };
	int left_ms = wait_ms;

	while (left_ms > 0 && poll(&state, 1, left_ms) < 0 && errno == EINTR)
		left_ms = wait_ms - (int)(clock_ms() - began_ms);
	return state.revents & POLLOUT;
}

/* An association with this peer, as the rule wants. Return the pair's end, -1: TCP it is. */
static int connect_sctp(int fd, const struct rule *rule, const struct sockaddr *address, size_t length)
{
	struct exchange made = { .request = { .operation = OP_SOCKET, .argument = { number_of(fd, SOL_SOCKET, SO_DOMAIN), SHIM_TYPE } } };
	struct exchange begun = { .request = { .operation = OP_SHIM_CONNECT,
					       .argument = { rule->rto_min_ms, rule->wait_ms, rule->try == TRY_BACKGROUND } },
				  .address = address, .address_length = length };
	int error = 0;
	struct exchange outcome = { .request = { .operation = OP_GETSOCKOPT, .argument = { SOL_SOCKET, SO_ERROR, sizeof(error), 1 } },
				    .result = (char *)&error, .result_room = sizeof(error) };
	struct sockaddr_in6 name = { 0 };
	socklen_t name_length = sizeof(name);

	if (real()->getsockname(fd, (struct sockaddr *)&name, &name_length) < 0 || channel_call(-1, &made) < 0)
		return -1;
	if (bind_as(made.descriptor, &name) && channel_call(made.descriptor, &begun) < 0 && errno == EINPROGRESS &&
	    wait_connected(made.descriptor, rule->wait_ms + SHIM_GRACE_MS) && channel_call(made.descriptor, &outcome) == 0 && error == 0)
		return made.descriptor;
	close(made.descriptor);
	return -1;
}

int shim_connect(int fd, const struct sockaddr *address, socklen_t length)
{
	const int flags = fcntl(fd, F_GETFL), saved = errno;
	struct sockaddr_in6 peer = { 0 };
	const struct rule *rule;
	struct tcp_info info;
	socklen_t info_length = sizeof(info);
	int pair;

	if (known_is_shim(fd_known(fd)))
		return fail(EISCONN);
	if (!is_tcp(fd) || length < sizeof(struct sockaddr_in) || length > sizeof(struct sockaddr_storage) || !memory_readable(address, length))
		return real()->connect(fd, address, length);
	memcpy(&peer, address, length < sizeof(peer) ? length : sizeof(peer));
	rule = rules_match(rules, END_REMOTE, (struct sockaddr *)&peer);
	if (rule == NULL || rule->use != USE_SCTP || length < size_of(&peer) || is_any(&peer) || stays_tcp(fd) ||
	    real()->getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &info_length) < 0 || info.tcpi_state != TCP_CLOSE)
		return real()->connect(fd, address, length);
	pair = connect_sctp(fd, rule, (struct sockaddr *)&peer, size_of(&peer));
	errno = saved;
	if (pair < 0 || swap(fd, pair, flags) < 0)
		return real()->connect(fd, address, length);
	return flags & O_NONBLOCK ? fail(EINPROGRESS) : 0; /* as TCP: the program sees it writable, and asks */
}

int shim_listen(int fd, int backlog)
{
	const int result = real()->listen(fd, backlog), saved = errno;
	char packed[sizeof(rules->addresses)];
	struct sockaddr_in6 name = { 0 };
	socklen_t length = sizeof(name);
	struct exchange told = { .request = { .operation = OP_SHIM_LISTEN }, .address = packed };
	const struct rule *rule;

	if (result < 0 || !is_tcp(fd) || real()->getsockname(fd, (struct sockaddr *)&name, &length) < 0)
		return result;
	rule = rules_match(rules, END_LOCAL, (struct sockaddr *)&name);
	if (rule != NULL && rule->use == USE_SCTP && !stays_tcp(fd)) {
		told.request.argument[0] = backlog;
		told.request.argument[1] = rule->rto_min_ms;
		if (!is_any(&name)) /* else it has all of them */
			told.address_length = more_addresses(&name, packed);
		channel_call(fd, &told);
	}
	errno = saved;
	return result;
}

int shim_accept(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
	struct sockaddr_in6 peer = { 0 };
	socklen_t peer_length = sizeof(peer);
	struct exchange told = { .request = { .operation = OP_SHIM_ACCEPT }, .result = (char *)&peer, .result_room = sizeof(peer) };
	const int accepted = real()->accept4(fd, address, length, flags), saved = errno;

	if (accepted < 0 || !is_tcp(accepted) || real()->getpeername(accepted, (struct sockaddr *)&peer, &peer_length) < 0 || !is_loopback(&peer) ||
	    channel_call(accepted, &told) < 0 || swap(accepted, told.descriptor, fcntl(accepted, F_GETFL)) < 0) {
		errno = saved;
		return accepted;
	}
	if (address != NULL && length != NULL) { /* the kernel has shortened it to its own answer, of the same family */
		memcpy(address, &peer, told.reply.address_length < *length ? told.reply.address_length : *length);
		*length = told.reply.address_length;
	}
	errno = saved;
	return accepted;
}

int shim_name(int fd, int operation, struct sockaddr *name, socklen_t *length)
{
	if (!known_is_shim(fd_known(fd)))
		return operation == OP_GETPEERNAME ? real()->getpeername(fd, name, length) : real()->getsockname(fd, name, length);
	if (sctp_name(fd, operation, name, length) == 0)
		return 0;
	return fail(errno == EBADF ? ENOTCONN : errno); /* sctpd has reset it */
}

/* The numbers that programs gave to options of TCP and IP, which have no effect: a later one may take the place of another's. */
static struct kept {
	ino_t inode;
	int level, option, value;
} all_kept[KEPT];

/* Its place in the table; *inode: that of the descriptor. */
static struct kept *kept_for(int fd, int level, int option, ino_t *inode)
{
	*inode = inode_of(fd);
	return &all_kept[(*inode * 31 + (unsigned int)level * 7 + (unsigned int)option) % KEPT];
}

int shim_set_option(int fd, int level, int option, const void *value, socklen_t length)
{
	struct kept kept = { .level = level, .option = option }, *place;
	int result;

	if (!known_is_shim(fd_known(fd))) {
		result = real()->setsockopt(fd, level, option, value, length);
		if (result == 0 && registrations != NULL && fd < DESCRIPTORS && is_of_tcp_only(level, option))
			registrations[fd].stays_tcp = inode_of(fd);
		return result;
	}
	if (length > OPTION_MAX || !memory_readable(value, length))
		return fail(EFAULT);
	if (level == SOL_SOCKET && option == SO_LINGER)
		sctp_set_option(fd, level, option, value, length);
	if (level == SOL_SOCKET)
		return real()->setsockopt(fd, level, option, value, length) < 0 && errno != EOPNOTSUPP && errno != ENOPROTOOPT ? -1 : 0;
	if ((level != IPPROTO_TCP && level != IPPROTO_IP && level != IPPROTO_IPV6) || is_of_tcp_only(level, option))
		return fail(ENOPROTOOPT);
	place = kept_for(fd, level, option, &kept.inode);
	if (length >= sizeof(kept.value)) {
		memcpy(&kept.value, value, sizeof(kept.value));
		*place = kept;
	}
	return 0;
}

/* The answer as far as there is room: TCP_INFO tells a connection that is up, and zeros. */
static int get_text(const void *answer, size_t size, void *value, socklen_t *length)
{
	*length = size < *length ? (socklen_t)size : *length;
	memcpy(value, answer, *length);
	return 0;
}

int shim_get_option(int fd, int level, int option, void *value, socklen_t *length)
{
	const struct tcp_info info = { .tcpi_state = TCP_ESTABLISHED };
	const struct kept *kept;
	struct sockaddr_in6 name = { 0 };
	socklen_t name_length = sizeof(name);
	ino_t inode;
	int answer = 0;

	if (!known_is_shim(fd_known(fd)))
		return real()->getsockopt(fd, level, option, value, length);
	if (level == SOL_SOCKET && option != SO_DOMAIN && option != SO_PROTOCOL)
		return real()->getsockopt(fd, level, option, value, length);
	if (memory_check_name(value, length) < 0)
		return -1;
	if (level == SOL_SOCKET && option == SO_PROTOCOL) {
		answer = IPPROTO_TCP;
	} else if (level == SOL_SOCKET) {
		answer = shim_name(fd, OP_GETSOCKNAME, (struct sockaddr *)&name, &name_length) == 0 ? name.sin6_family : AF_INET;
	} else if (level != IPPROTO_TCP && level != IPPROTO_IP && level != IPPROTO_IPV6) {
		return fail(ENOPROTOOPT);
	} else if (level == IPPROTO_TCP && option == TCP_INFO) {
		return get_text(&info, sizeof(info), value, length);
	} else if (level == IPPROTO_TCP && option == TCP_CONGESTION) {
		return get_text("sctp", sizeof("sctp"), value, length);
	} else if (level == IPPROTO_IP && option == IP_OPTIONS) { /* none came: sshd refuses a connection that has some */
		return get_text("", 0, value, length);
	} else {
		kept = kept_for(fd, level, option, &inode);
		if (kept->inode == inode && kept->level == level && kept->option == option)
			answer = kept->value;
		else if (level == IPPROTO_TCP && (option == TCP_NODELAY || option == TCP_MAXSEG))
			answer = option == TCP_NODELAY ? 1 : SEGMENT; /* nothing is ever held back */
	}
	return get_text(&answer, sizeof(answer), value, length);
}
