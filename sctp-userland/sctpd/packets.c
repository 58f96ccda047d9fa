#include "packets.h"

#include <errno.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <usrsctp.h>

#include "bound.h"
#include "init_check.h"
#include "interfaces.h"
#include "limits.h"
#include "loop.h"
#include "outbound.h"
#include "refusals.h"
#include "routes.h"
#include "usrsctp_internal.h"

#define PACKET_MAX 65600
#define BUFFER_SIZE (4 * 1024 * 1024) /* bytes: a burst must not be lost in the raw socket */
#define PER_TURN 64
#define OWN_MAX 64
#define OWN_MS 2 /* a busy kernel brings them a moment later */
#define AT_ONCE 8
#define BEGINNINGS_PER_TURN 8
#define HANDSHAKE 4 /* packets, each after the other */
#define COMMON_HEADER 12
#define CHUNK_HEADER 4
#define SMALLEST_MTU 512  /* bytes; below, the kernel fragments */
#define LARGEST_MTU 1500  /* what usrsctp begins with */
#define PACKET_COST 256 /* bytes of memory beyond those of the packet */

static char incoming[PACKET_MAX], outgoing[PACKET_MAX];

/* INITs come by sockets of their own, a few at a time: of a flood of them, associations that are up notice little. */
struct raw {
	struct watch watch; /* first */
	int family;
	bool takes_inits;
	int own; /* packets to this host itself that may be on their way */
};

static void ready(struct watch *watch, uint32_t events);
static struct raw raws[] = {
	{ { -1, EPOLLIN, ready }, AF_INET, false },
	{ { -1, EPOLLIN, ready }, AF_INET, true },
	{ { -1, EPOLLIN, ready }, AF_INET6, false },
	{ { -1, EPOLLIN, ready }, AF_INET6, true },
};
#define RAWS (sizeof(raws) / sizeof(raws[0]))

static struct raw *raw_of(int family, bool takes_inits)
{
	return &raws[(family == AF_INET ? 0 : 2) + takes_inits];
}

static void note_own(struct raw *raw, int number)
{
	const int own = raw->own + number;

	raw->own = own < 0 ? 0 : own > OWN_MAX ? OWN_MAX : own;
}

/* A raw socket takes INITs only, or all else. IPv4 packets come with their header, IPv6 ones without. */
static int filter(const struct raw *raw)
{
	const struct sock_filter begin4 = BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0), begin6 = BPF_STMT(BPF_LDX | BPF_IMM, 0);
	struct sock_filter program[] = {
		raw->family == AF_INET ? begin4 : begin6,
		BPF_STMT(BPF_LD | BPF_B | BPF_IND, COMMON_HEADER),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SCTP_INITIATION, raw->takes_inits ? 0 : 1, raw->takes_inits ? 1 : 0),
		BPF_STMT(BPF_RET | BPF_K, PACKET_MAX),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	const struct sock_fprog all = { sizeof(program) / sizeof(program[0]), program };

	return setsockopt(raw->watch.fd, SOL_SOCKET, SO_ATTACH_FILTER, &all, sizeof(all));
}

/* Without, the kernel says EMSGSIZE when the path's MTU has become smaller: what it knows of it is asked then. IPv4. */
static void may_fragment(int fd, bool may)
{
	const int discover = may ? IP_PMTUDISC_WANT : IP_PMTUDISC_DO;

	setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof(discover));
}

static int open_raw(struct raw *raw)
{
	int fd = socket(raw->family, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_SCTP), size = BUFFER_SIZE, yes = 1;

	raw->watch.fd = fd;
	if (fd < 0 || filter(raw) < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)) < 0)
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)) < 0)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	if (raw->family == AF_INET)
		may_fragment(fd, false);
	else if (setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &yes, sizeof(yes)) < 0)
		return -errno;
	return loop_add(&raw->watch);
}

int packets_open(void)
{
	int error = 0;
	size_t i;

	for (i = 0; i < RAWS && error == 0; i++) {
		error = open_raw(&raws[i]);
		if (error == -EAFNOSUPPORT && raws[i].family == AF_INET6)
			error = 0; /* IPv6 is off on this host */
	}
	return error == 0 ? refusals_watch() : error;
}

/* Which chunks it brings: a bit for each of the types up to 31. */
static uint32_t chunks_of(const char *packet, int length)
{
	uint32_t found = 0;
	uint16_t size;
	int at;

	for (at = COMMON_HEADER; at + CHUNK_HEADER <= length; at += (size + 3) & ~3) {
		if ((uint8_t)packet[at] < 32)
			found |= 1U << packet[at];
		memcpy(&size, packet + at + 2, sizeof(size));
		size = ntohs(size);
		if (size < CHUNK_HEADER)
			break;
	}
	return found;
}

struct mbuf *packets_buffers(int length)
{
	struct mbuf *first = NULL, **next = &first;
	int done;

	for (done = 0; done < length; next = &(*next)->m_next) {
		*next = sctp_get_mbuf_for_msg(MBUF_CLUSTER, done == 0, MBUF_NOWAIT, 1, MBUF_DATA);
		if (*next == NULL) {
			if (first != NULL)
				m_freem(first);
			return NULL;
		}
		(*next)->m_len = length - done < MBUF_CLUSTER ? length - done : MBUF_CLUSTER;
		done += (*next)->m_len;
	}
	return first;
}

/* Whether an association with these ports has the tag that the packet gives, as all packets of its peer but an ABORT that reflects the peer's own. */
static bool has_right_tag(const char *packet)
{
	struct common_header {
		uint16_t peers_port, port;
		uint32_t tag;
	} header;
	struct timeval now;

	memcpy(&header, packet, sizeof(header));
	gettimeofday(&now, NULL);
	return !sctp_is_vtag_good(ntohl(header.tag), header.port, header.peers_port, &now);
}

void packets_input(const char *packet, int length, struct sockaddr *source, struct sockaddr *destination, uint8_t ecn_bits)
{
	struct mbuf *first;
	uint32_t chunks;

	if (length < COMMON_HEADER + CHUNK_HEADER || init_is_wrong(packet + COMMON_HEADER, length - COMMON_HEADER))
		return;
	limits_note((uint64_t)length + PACKET_COST);
	chunks = chunks_of(packet, length);
	if (chunks & (1U << SCTP_SHUTDOWN | 1U << SCTP_ABORT_ASSOCIATION) && has_right_tag(packet))
		outbound_end(address_port(destination), source); /* from then on usrsctp takes nothing more */
	if (limits_reached() && chunks & (1U << SCTP_DATA | 1U << SCTP_INITIATION | 1U << SCTP_COOKIE_ECHO))
		return; /* as a full queue on the way would */
	first = packets_buffers(length);
	if (first == NULL)
		return;
	m_copyback(first, 0, length, packet);
	sctp_common_input_processing(&first, 0, COMMON_HEADER, length, source, destination, first->m_data,
				     first->m_data + COMMON_HEADER, 1, ecn_bits, 0, 0);
	if (first != NULL)
		m_freem(first);
}

void packets_input4(const char *datagram, int length)
{
	struct sockaddr_in source = { .sin_family = AF_INET }, destination = { .sin_family = AF_INET };
	struct ip header;
	int skip;

	if (length < (int)sizeof(header))
		return;
	memcpy(&header, datagram, sizeof(header));
	skip = header.ip_hl * 4;
	if (skip < (int)sizeof(header) || length < skip + COMMON_HEADER + CHUNK_HEADER ||
	    IN_MULTICAST(ntohl(header.ip_dst.s_addr)) || header.ip_dst.s_addr == INADDR_BROADCAST)
		return;
	source.sin_addr = header.ip_src;
	destination.sin_addr = header.ip_dst;
	memcpy(&source.sin_port, datagram + skip, 2);
	memcpy(&destination.sin_port, datagram + skip + 2, 2);
	packets_input(datagram + skip, length - skip, (struct sockaddr *)&source, (struct sockaddr *)&destination,
		      header.ip_tos & 3);
}

/* Several a call: it tells by itself that no more wait. */
static bool take4(struct raw *raw)
{
	const int turns = (raw->takes_inits ? BEGINNINGS_PER_TURN : PER_TURN) / AT_ONCE;
	static char datagrams[AT_ONCE][PACKET_MAX];
	int turn, i, count;

	for (turn = 0; turn < turns; turn++) {
		struct iovec vectors[AT_ONCE];
		struct mmsghdr messages[AT_ONCE] = { 0 };

		for (i = 0; i < AT_ONCE; i++) {
			vectors[i] = (struct iovec){ datagrams[i], PACKET_MAX };
			messages[i].msg_hdr = (struct msghdr){ .msg_iov = &vectors[i], .msg_iovlen = 1 };
		}
		count = recvmmsg(raw->watch.fd, messages, AT_ONCE, MSG_DONTWAIT, NULL);
		note_own(raw, -(count > 0 ? count : 0));
		for (i = 0; i < count; i++)
			packets_input4(datagrams[i], (int)messages[i].msg_len);
		if (count < AT_ONCE)
			return turn > 0 || count > 0;
	}
	return true;
}

static bool take6(struct raw *raw)
{
	const int turns = raw->takes_inits ? BEGINNINGS_PER_TURN : PER_TURN;
	int turn;

	for (turn = 0; turn < turns; turn++) {
		struct sockaddr_in6 source = { 0 }, destination = { .sin6_family = AF_INET6 };
		char control[CMSG_SPACE(sizeof(struct in6_pktinfo))];
		struct iovec vector = { incoming, sizeof(incoming) };
		struct msghdr message = { .msg_name = &source, .msg_namelen = sizeof(source), .msg_iov = &vector,
					  .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
		ssize_t length = recvmsg(raw->watch.fd, &message, 0);
		struct cmsghdr *item;

		if (length < 0)
			return turn > 0;
		note_own(raw, -1);
		for (item = CMSG_FIRSTHDR(&message); item != NULL; item = CMSG_NXTHDR(&message, item))
			if (item->cmsg_level == IPPROTO_IPV6 && item->cmsg_type == IPV6_PKTINFO)
				memcpy(&destination.sin6_addr, CMSG_DATA(item), sizeof(destination.sin6_addr));
		if (length < COMMON_HEADER + CHUNK_HEADER || IN6_IS_ADDR_MULTICAST(&destination.sin6_addr))
			continue;
		source.sin6_family = AF_INET6;
		memcpy(&source.sin6_port, incoming, 2);
		memcpy(&destination.sin6_port, incoming + 2, 2);
		packets_input(incoming, (int)length, (struct sockaddr *)&source, (struct sockaddr *)&destination, 0);
	}
	return true;
}

static bool take(struct raw *raw)
{
	return raw->family == AF_INET ? take4(raw) : take6(raw);
}

static void ready(struct watch *watch, uint32_t)
{
	take((struct raw *)watch);
}

void packets_take_waiting(void)
{
	size_t turn, i;

	for (turn = 0; turn < HANDSHAKE; turn++)
		for (i = 0; i < RAWS && raws[i].watch.fd >= 0; i++)
			take(&raws[i]);
}

bool packets_take_own(bool waits)
{
	struct pollfd sockets[RAWS];
	bool is_own = false, any = false;
	size_t i;

	for (i = 0; i < RAWS; i++) {
		sockets[i] = (struct pollfd){ raws[i].own > 0 ? raws[i].watch.fd : -1, POLLIN, 0 };
		is_own |= raws[i].own > 0;
	}
	if (waits && is_own && poll(sockets, RAWS, OWN_MS) <= 0)
		is_own = false; /* they were lost */
	for (i = 0; i < RAWS; i++)
		if (!is_own)
			raws[i].own = 0;
		else if (raws[i].own > 0)
			any |= take(&raws[i]);
	return any;
}

/* Copy a chain and free it; return its length, 0 when it can't be sent. */
static int flatten(struct mbuf *packet)
{
	unsigned int length = m_length(packet, NULL);

	if (length <= sizeof(outgoing))
		m_copydata(packet, 0, (int)length, outgoing);
	else
		length = 0;
	m_freem(packet);
	return (int)length;
}

/* usrsctp itself lowers the path's MTU when it is told so here. */
static void tell_mtu(const struct path_route *route, uint32_t mtu)
{
	if (route != NULL && route->entry != NULL && mtu > 0)
		route->entry->mtu = mtu < SMALLEST_MTU ? SMALLEST_MTU : mtu > LARGEST_MTU ? LARGEST_MTU : mtu;
}

/* Send the SCTP packet at `packet`. The kernel puts its own header, and makes fragments: a chunk that has its number stays as long as it is when the
 * path's MTU becomes smaller (RFC 9260 section 6.9). A local error (no route, link down, buffer full) is a lost packet: retransmission and failover
 * must go on. */
static void output(const char *packet, size_t length, struct sockaddr_in6 *source, struct sockaddr_in6 *destination, void *route)
{
	const bool v4 = destination->sin6_family == AF_INET;
	char control[CMSG_SPACE(sizeof(struct in6_pktinfo))] = { 0 };
	struct iovec vector = { (void *)(uintptr_t)packet, length };
	struct msghdr message = { .msg_name = destination, .msg_namelen = address_length((struct sockaddr *)destination), .msg_iov = &vector,
				  .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	struct cmsghdr *item = CMSG_FIRSTHDR(&message);
	struct in6_pktinfo from6 = { 0 };
	struct in_pktinfo from4 = { 0 };
	int fd = raw_of(destination->sin6_family, false)->watch.fd, attempt;

	note_own(raw_of(destination->sin6_family, packet[COMMON_HEADER] == SCTP_INITIATION), interfaces_have(destination));
	for (attempt = 0; attempt < 2; attempt++) {
		tell_mtu(route, routes_choose_source(source, (struct sockaddr *)destination, packet));
		from4.ipi_spec_dst = ((struct sockaddr_in *)source)->sin_addr;
		from6.ipi6_addr = source->sin6_addr;
		if (IN6_IS_ADDR_LINKLOCAL(&destination->sin6_addr) && !v4)
			destination->sin6_scope_id = from6.ipi6_ifindex = interfaces_index_of(source);
		item->cmsg_level = v4 ? IPPROTO_IP : IPPROTO_IPV6;
		item->cmsg_type = v4 ? IP_PKTINFO : IPV6_PKTINFO;
		item->cmsg_len = v4 ? CMSG_LEN(sizeof(from4)) : CMSG_LEN(sizeof(from6));
		memcpy(CMSG_DATA(item), v4 ? (void *)&from4 : (void *)&from6, item->cmsg_len - CMSG_LEN(0));
		message.msg_controllen = CMSG_ALIGN(item->cmsg_len);
		if (sendmsg(fd, &message, MSG_DONTWAIT) >= 0 || errno != EMSGSIZE || !v4)
			break;
		routes_forget();
		may_fragment(fd, true);
	}
	if (attempt > 0)
		may_fragment(fd, false);
}

void sctp_userspace_ip_output(int *result, struct mbuf *packet, void *route, void *, uint32_t)
{
	const struct ip *header = (const struct ip *)outgoing;
	const int skip = sizeof(*header), length = flatten(packet);
	struct sockaddr_in6 source = { .sin6_family = AF_INET }, destination = source;

	*result = 0;
	if (length < skip + COMMON_HEADER)
		return;
	((struct sockaddr_in *)&source)->sin_addr = header->ip_src;
	((struct sockaddr_in *)&destination)->sin_addr = header->ip_dst;
	output(outgoing + skip, (size_t)(length - skip), &source, &destination, route);
}

void sctp_userspace_ip6_output(int *result, struct mbuf *packet, void *route, void *, uint32_t)
{
	const struct ip6_hdr *header = (const struct ip6_hdr *)outgoing;
	const int skip = sizeof(*header), length = flatten(packet);
	struct sockaddr_in6 source = { .sin6_family = AF_INET6, .sin6_addr = header->ip6_src };
	struct sockaddr_in6 destination = { .sin6_family = AF_INET6, .sin6_addr = header->ip6_dst };

	*result = 0;
	if (length >= skip + COMMON_HEADER)
		output(outgoing + skip, (size_t)(length - skip), &source, &destination, route);
}
