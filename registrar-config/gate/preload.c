/*
 * The gate as a library that stands before libc, libsctp and, where there is one, libsctp-userland (LD_PRELOAD). It replaces
 *
 * - recvmsg(): rspregistrar reads a message that may not pass as a notification of no kind, which it ignores;
 * - sctp_getpaddrs(): it lists only confirmed addresses (RFC 9260, section 5.4). rspregistrar takes what this lists for the
 *   peer's own.
 *
 * RSPDNS_GATE_RULES names the rules file; it is looked at once a second, and read when it changed. RSPDNS_GATE_FD is a
 * descriptor to which lines are written: "ready PID RULES", "rules RULES", "wrong PROBLEM", "dropped REASON HOST TOTAL".
 * rspregistrar is one thread, so nothing here is locked.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/sctp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "gate.h"

#define EXPORTED __attribute__((visibility("default")))
#define LOOK_EVERY_MS 1000
#define MOST_LINES 64 /* written at a time */
#define KNOWN_PEERS 4096 /* a power of two */
#define WRONG_CONFIGURATION 78 /* EX_CONFIG */
#define PROBLEM_BYTES 256

static ssize_t (*real_recvmsg)(int, struct msghdr *, int);
static int (*real_getpaddrs)(int, sctp_assoc_t, struct sockaddr **);

static struct {
	struct gate *gate; /* NULL: none, all passes */
	const char *path;
	struct stat seen;
	uint64_t look_at_ms;
	int tell_fd;
} state = { .tell_fd = -1 };

/* Those of recent associations; a confirmed address stays confirmed while the association lives. */
static struct known_peer {
	struct peer peer;
	bool is_whole; /* all its addresses are confirmed */
} known_peers[KNOWN_PEERS];

__attribute__((format(printf, 1, 2))) static void tell(const char *format, ...)
{
	char line[PROBLEM_BYTES + 64];
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	if (length >= (int)sizeof(line))
		length = (int)sizeof(line) - 1;
	/* A full pipe loses the line; the next one about the same counter has the total again. */
	if (state.tell_fd >= 0 && length > 0 && write(state.tell_fd, line, (size_t)length) < 0)
		return;
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* The rules file */

static struct rules *load(const char *path, struct stat *seen, char *problem)
{
	struct rules *rules = NULL;
	char *text;
	ssize_t length;
	const int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, seen) < 0) {
		snprintf(problem, PROBLEM_BYTES, "%s", strerror(errno));
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	text = malloc(MAX_RULES_BYTES + 1);
	length = text ? read(fd, text, MAX_RULES_BYTES + 1) : -1;
	close(fd);
	if (length < 0 || length > MAX_RULES_BYTES) {
		snprintf(problem, PROBLEM_BYTES, "it can't be read, or has more than %d bytes", MAX_RULES_BYTES);
	} else if (memchr(text, '\0', (size_t)length)) {
		snprintf(problem, PROBLEM_BYTES, "it is no text");
	} else {
		text[length] = '\0';
		rules = rules_read(text, problem, PROBLEM_BYTES);
	}
	free(text);
	return rules;
}

/* For `rspdns-registrar check`: 0, or -1 and what is wrong in `problem`, which has 256 bytes. */
EXPORTED int rspdns_gate_check(const char *path, char *problem);
EXPORTED int rspdns_gate_check(const char *path, char *problem)
{
	struct stat seen;
	struct rules *rules = load(path, &seen, problem);

	rules_free(rules);
	return rules ? 0 : -1;
}

static bool is_changed(const struct stat *a, const struct stat *b)
{
	return a->st_ino != b->st_ino || a->st_size != b->st_size || a->st_mtim.tv_sec != b->st_mtim.tv_sec ||
	       a->st_mtim.tv_nsec != b->st_mtim.tv_nsec;
}

/* Read the file again when it changed. Rules that are wrong change nothing. */
static void look_at_rules(void)
{
	struct rules *rules;
	struct stat found;
	char problem[PROBLEM_BYTES];

	if (stat(state.path, &found) < 0)
		memset(&found, 0, sizeof(found));
	if (!is_changed(&found, &state.seen))
		return;
	state.seen = found;
	rules = load(state.path, &found, problem);
	if (rules) {
		state.seen = found;
		gate_set_rules(state.gate, rules);
		tell("rules %zu\n", rules->count + rules->pool_count);
	} else {
		tell("wrong %s\n", problem);
	}
}

static void look(uint64_t now)
{
	struct address host;
	enum verdict verdict;
	uint64_t dropped;
	char text[ADDRESS_TEXT];
	int lines;

	if (now < state.look_at_ms)
		return;
	state.look_at_ms = now + LOOK_EVERY_MS;
	look_at_rules();
	for (lines = 0; lines < MOST_LINES && gate_next_changed(state.gate, &host, &verdict, &dropped); lines++) {
		address_print(&host, text);
		tell("dropped %s %s %llu\n", verdict_names[verdict], text, (unsigned long long)dropped);
	}
}

__attribute__((constructor)) static void start(void)
{
	const char *fd = getenv("RSPDNS_GATE_FD");
	char problem[PROBLEM_BYTES];
	struct rules *rules;

	*(void **)&real_recvmsg = dlsym(RTLD_NEXT, "recvmsg");
	*(void **)&real_getpaddrs = dlsym(RTLD_NEXT, "sctp_getpaddrs");
	state.path = getenv("RSPDNS_GATE_RULES");
	if (!state.path)
		return;
	rules = load(state.path, &state.seen, problem);
	state.gate = rules ? gate_new(rules) : NULL;
	if (!state.gate) {
		fprintf(stderr, "gate: %s: %s\n", state.path, rules ? "no memory" : problem);
		_exit(WRONG_CONFIGURATION);
	}
	if (fd && fcntl(atoi(fd), F_SETFD, FD_CLOEXEC) == 0) {
		state.tell_fd = atoi(fd);
		fcntl(state.tell_fd, F_SETFL, O_NONBLOCK);
	}
	tell("ready %d %zu\n", (int)getpid(), rules->count + rules->pool_count);
}

/* Addresses */

static socklen_t length_of(const struct sockaddr *address)
{
	return address->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

static bool is_confirmed(int fd, sctp_assoc_t association, const struct sockaddr *address)
{
	struct sctp_paddrinfo info = { .spinfo_assoc_id = association };
	socklen_t length = sizeof(info);

	memcpy(&info.spinfo_address, address, length_of(address));
	return getsockopt(fd, IPPROTO_SCTP, SCTP_GET_PEER_ADDR_INFO, &info, &length) == 0 &&
	       (info.spinfo_state == SCTP_INACTIVE || info.spinfo_state == SCTP_PF || info.spinfo_state == SCTP_ACTIVE);
}

static uint64_t association_key(int fd, sctp_assoc_t association)
{
	return (uint64_t)(unsigned)(fd + 1) << 32 | (uint32_t)association;
}

static struct known_peer *place_of(uint64_t key)
{
	return &known_peers[(key ^ key >> 32) & (KNOWN_PEERS - 1)];
}

static struct address address_of(const struct sockaddr *address)
{
	struct address found;

	if (address->sa_family == AF_INET)
		return address_v4((const uint8_t *)&((const struct sockaddr_in *)address)->sin_addr);
	memcpy(found.bytes, &((const struct sockaddr_in6 *)address)->sin6_addr, ADDRESS_BYTES);
	return found;
}

/* Whether the address was seen confirmed since the association began. */
static bool is_known(const struct known_peer *known, uint64_t key, const struct sockaddr *address)
{
	const struct address sought = address_of(address);
	size_t i;

	for (i = 0; known->peer.association == key && i < known->peer.count; i++)
		if (address_equal(&known->peer.addresses[i], &sought))
			return true;
	return false;
}

EXPORTED int sctp_getpaddrs(int fd, sctp_assoc_t association, struct sockaddr **addresses)
{
	const int count = real_getpaddrs ? real_getpaddrs(fd, association, addresses) : -1;
	/* A confirmed address stays so while the association lives: asking again would double the cost of a registration. */
	const struct known_peer *known = place_of(association_key(fd, association));
	char *from, *to;
	int i, kept = 0;

	if (!real_getpaddrs)
		errno = ENOSYS;
	if (!state.gate || count <= 0)
		return count;
	from = to = (char *)*addresses;
	for (i = 0; i < count; i++) {
		const socklen_t length = length_of((struct sockaddr *)from);

		if (is_known(known, association_key(fd, association), (struct sockaddr *)from) ||
		    is_confirmed(fd, association, (struct sockaddr *)from)) {
			memmove(to, from, length);
			to += length;
			kept++;
		}
		from += length;
	}
	if (kept == 0) {
		sctp_freepaddrs(*addresses);
		*addresses = NULL;
	}
	return kept;
}

static void look_up(int fd, sctp_assoc_t association, struct known_peer *known)
{
	struct sockaddr *addresses = NULL;
	const int count = real_getpaddrs ? real_getpaddrs(fd, association, &addresses) : -1;
	const char *at = (const char *)addresses;
	int i;

	known->peer.association = association_key(fd, association);
	known->peer.count = 0;
	known->is_whole = count > 0; /* when it fails, the next message asks again */
	for (i = 0; i < count; i++) {
		const struct sockaddr *address = (const struct sockaddr *)at;

		at += length_of(address);
		if (known->peer.count == MAX_PEER_ADDRESSES)
			break;
		if (!is_confirmed(fd, association, address)) {
			known->is_whole = false;
			continue;
		}
		known->peer.addresses[known->peer.count++] = address_of(address);
	}
	if (count > 0)
		sctp_freepaddrs(addresses);
}

/* Received messages and notifications */

static void noticed(int fd, const void *data, size_t length)
{
	const union sctp_notification *notification = data;
	sctp_assoc_t association;
	bool has_ended;
	uint64_t key;

	if (length < sizeof(notification->sn_header))
		return;
	if (notification->sn_header.sn_type == SCTP_ASSOC_CHANGE && length >= sizeof(struct sctp_assoc_change)) {
		association = notification->sn_assoc_change.sac_assoc_id;
		has_ended = notification->sn_assoc_change.sac_state == SCTP_COMM_LOST ||
			    notification->sn_assoc_change.sac_state == SCTP_SHUTDOWN_COMP;
	} else if (notification->sn_header.sn_type == SCTP_SHUTDOWN_EVENT && length >= sizeof(struct sctp_shutdown_event)) {
		association = notification->sn_shutdown_event.sse_assoc_id;
		has_ended = true;
	} else {
		return;
	}
	key = association_key(fd, association);
	if (place_of(key)->peer.association == key)
		place_of(key)->peer.association = 0;
	if (has_ended)
		gate_forget(state.gate, key);
}

static const struct sctp_sndrcvinfo *info_of(struct msghdr *message)
{
	struct cmsghdr *item;

	for (item = CMSG_FIRSTHDR(message); item; item = CMSG_NXTHDR(message, item))
		if (item->cmsg_level == IPPROTO_SCTP && item->cmsg_type == SCTP_SNDRCV &&
		    item->cmsg_len >= CMSG_LEN(sizeof(struct sctp_sndrcvinfo)))
			return (const struct sctp_sndrcvinfo *)CMSG_DATA(item);
	return NULL;
}

/* Why the message may not pass, counted; PASSED. */
static enum verdict judge(int fd, struct msghdr *message, size_t length, uint64_t now)
{
	static const struct peer nobody;
	const struct sctp_sndrcvinfo *info = info_of(message);
	enum verdict verdict = MALFORMED;
	struct known_peer *known = NULL;
	bool is_fresh = false;

	if (info) {
		known = place_of(association_key(fd, info->sinfo_assoc_id));
		if (known->peer.association != association_key(fd, info->sinfo_assoc_id)) {
			look_up(fd, info->sinfo_assoc_id, known);
			is_fresh = true;
		}
		/* A piece is either longer than any message, or one of those that lie. */
		if (message->msg_flags & MSG_EOR && message->msg_iovlen == 1 && length <= message->msg_iov[0].iov_len) {
			verdict = gate_judge(state.gate, now, &known->peer, ntohl(info->sinfo_ppid), message->msg_iov[0].iov_base, length);
			if (verdict != PASSED && !known->is_whole && !is_fresh) {
				look_up(fd, info->sinfo_assoc_id, known); /* more may be confirmed by now */
				verdict = gate_judge(state.gate, now, &known->peer, ntohl(info->sinfo_ppid),
						     message->msg_iov[0].iov_base, length);
			}
		}
	}
	if (verdict != PASSED)
		gate_count(state.gate, known ? &known->peer : &nobody, verdict);
	return verdict;
}

EXPORTED ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	static const struct {
		uint16_t type, flags;
		uint32_t length;
	} nothing = { 0, 0, sizeof(nothing) };
	const ssize_t length = real_recvmsg(fd, message, flags);
	uint64_t now;

	if (!state.gate || length <= 0 || flags & MSG_PEEK)
		return length;
	now = now_ms();
	look(now);
	if (message->msg_flags & MSG_NOTIFICATION) {
		if (message->msg_iovlen && message->msg_iov[0].iov_len >= (size_t)length)
			noticed(fd, message->msg_iov[0].iov_base, (size_t)length);
		return length;
	}
	if (judge(fd, message, (size_t)length, now) == PASSED)
		return length;
	if (message->msg_iovlen == 0 || message->msg_iov[0].iov_len < sizeof(nothing)) {
		errno = EAGAIN;
		return -1;
	}
	memcpy(message->msg_iov[0].iov_base, &nothing, sizeof(nothing));
	message->msg_controllen = 0;
	message->msg_flags = MSG_NOTIFICATION | MSG_EOR;
	return sizeof(nothing);
}
