#include "packets.h"

#include <errno.h>
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
#include "routes.h"
#include "usrsctp_internal.h"

#define PACKET_MAX 65600
#define BUFFER_SIZE (4 * 1024 * 1024) /* bytes: a burst must not be lost in the raw socket */
#define PER_TURN 64
#define OWN_MAX 64
#define OWN_MS 2 /* a busy kernel brings them a moment later */
#define AT_ONCE 8
#define HANDSHAKE 4 /* packets, each after the other */
#define COMMON_HEADER 12
#define CHUNK_HEADER 4
#define SMALLEST_MTU 512  /* bytes; below, the kernel fragments */
#define LARGEST_MTU 1500  /* what usrsctp begins with */
#define PACKET_COST 256 /* bytes of memory beyond those of the packet */

static char incoming[PACKET_MAX], outgoing[PACKET_MAX];
static int own4, own6; /* packets to this host itself that may be on their way */

static void note_own(int *own, int number)
{
	*own = *own + number < 0 ? 0 : *own + number > OWN_MAX ? OWN_MAX : *own + number;
}

static void ready4(struct watch *watch, uint32_t events);
static void ready6(struct watch *watch, uint32_t events);
static struct watch raw4 = { -1, EPOLLIN, ready4 }, raw6 = { -1, EPOLLIN, ready6 };

static int open_raw(struct watch *watch, int family)
{
	int size = BUFFER_SIZE, yes = 1, fragment = IP_PMTUDISC_DONT;

	watch->fd = socket(family, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_SCTP);
	if (watch->fd < 0)
		return -errno;
	if (setsockopt(watch->fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)) < 0)
		setsockopt(watch->fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	if (setsockopt(watch->fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)) < 0)
		setsockopt(watch->fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	if (family == AF_INET && setsockopt(watch->fd, IPPROTO_IP, IP_MTU_DISCOVER, &fragment, sizeof(fragment)) < 0)
		return -errno; /* without a header of ours only: with one, usrsctp decides */
	if (family == AF_INET ? setsockopt(watch->fd, IPPROTO_IP, IP_HDRINCL, &yes, sizeof(yes)) < 0
			      : setsockopt(watch->fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &yes, sizeof(yes)) < 0)
		return -errno;
	return loop_add(watch);
}

int packets_open(void)
{
	int error = open_raw(&raw4, AF_INET);

	if (error == 0) {
		error = open_raw(&raw6, AF_INET6);
		if (error == -EAFNOSUPPORT) /* IPv6 is off on this host */
			error = 0;
	}
	return error;
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

void packets_input(const char *packet, int length, struct sockaddr *source, struct sockaddr *destination, uint8_t ecn_bits)
{
	struct mbuf *first;
	uint32_t chunks;

	if (length < COMMON_HEADER + CHUNK_HEADER || init_is_wrong(packet + COMMON_HEADER, length - COMMON_HEADER))
		return;
	limits_note((uint64_t)length + PACKET_COST);
	chunks = chunks_of(packet, length);
	if (chunks & (1U << SCTP_SHUTDOWN | 1U << SCTP_ABORT_ASSOCIATION))
		outbound_end(address_port(destination)); /* from then on usrsctp takes nothing more */
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
static bool take4(void)
{
	static char datagrams[AT_ONCE][PACKET_MAX];
	int turn, i, count;

	for (turn = 0; turn < PER_TURN / AT_ONCE; turn++) {
		struct iovec vectors[AT_ONCE];
		struct mmsghdr messages[AT_ONCE] = { 0 };

		for (i = 0; i < AT_ONCE; i++) {
			vectors[i] = (struct iovec){ datagrams[i], PACKET_MAX };
			messages[i].msg_hdr = (struct msghdr){ .msg_iov = &vectors[i], .msg_iovlen = 1 };
		}
		count = recvmmsg(raw4.fd, messages, AT_ONCE, MSG_DONTWAIT, NULL);
		note_own(&own4, -(count > 0 ? count : 0));
		for (i = 0; i < count; i++)
			packets_input4(datagrams[i], (int)messages[i].msg_len);
		if (count < AT_ONCE)
			return turn > 0 || count > 0;
	}
	return true;
}

static void ready4(struct watch *watch, uint32_t events)
{
	(void)watch, (void)events;
	take4();
}

static bool take6(void)
{
	int turn;

	for (turn = 0; turn < PER_TURN; turn++) {
		struct sockaddr_in6 source = { 0 }, destination = { .sin6_family = AF_INET6 };
		char control[CMSG_SPACE(sizeof(struct in6_pktinfo))];
		struct iovec vector = { incoming, sizeof(incoming) };
		struct msghdr message = { .msg_name = &source, .msg_namelen = sizeof(source), .msg_iov = &vector,
					  .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
		ssize_t length = recvmsg(raw6.fd, &message, 0);
		struct cmsghdr *item;

		if (length < 0)
			return turn > 0;
		note_own(&own6, -1);
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

static void ready6(struct watch *watch, uint32_t events)
{
	(void)watch, (void)events;
	take6();
}

void packets_take_waiting(void)
{
	int turn;

	for (turn = 0; turn < HANDSHAKE; turn++) {
		take4();
		if (raw6.fd >= 0)
			take6();
	}
}

bool packets_take_own(bool waits)
{
	struct pollfd raw[] = { { own4 > 0 ? raw4.fd : -1, POLLIN, 0 }, { own6 > 0 ? raw6.fd : -1, POLLIN, 0 } };
	bool any = false;

	if (waits && own4 + own6 > 0 && poll(raw, 2, OWN_MS) <= 0)
		own4 = own6 = 0; /* they were lost */
	if (own4 > 0)
		any |= take4();
	if (own6 > 0)
		any |= take6();
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

/* A chunk that has its number stays as long as it is when the path's MTU becomes smaller: it goes in fragments (RFC 9260 section 6.9). With a
 * header of ours the kernel makes none, so it puts its own. */
static void send_fragmented(int length, const struct sockaddr_in *destination)
{
	const struct ip *header = (const struct ip *)outgoing;
	size_t skip = header->ip_hl * 4U;
	char control[CMSG_SPACE(sizeof(struct in_pktinfo))] = { 0 };
	struct in_pktinfo source = { .ipi_spec_dst = header->ip_src };
	struct iovec vector = { outgoing + skip, (size_t)length - skip };
	struct msghdr message = { .msg_name = (void *)(uintptr_t)destination, .msg_namelen = sizeof(*destination), .msg_iov = &vector,
				  .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	struct cmsghdr *item = CMSG_FIRSTHDR(&message);
	const int no = 0, yes = 1;

	item->cmsg_level = IPPROTO_IP;
	item->cmsg_type = IP_PKTINFO;
	item->cmsg_len = CMSG_LEN(sizeof(source));
	memcpy(CMSG_DATA(item), &source, sizeof(source));
	setsockopt(raw4.fd, IPPROTO_IP, IP_HDRINCL, &no, sizeof(no));
	sendmsg(raw4.fd, &message, MSG_DONTWAIT);
	setsockopt(raw4.fd, IPPROTO_IP, IP_HDRINCL, &yes, sizeof(yes));
}

static uint32_t choose_source4(struct ip *header, const struct sockaddr_in *destination)
{
	struct sockaddr_in6 source = { .sin6_family = AF_INET };
	struct sockaddr_in *v4 = (struct sockaddr_in *)&source;
	uint32_t mtu;

	v4->sin_addr = header->ip_src;
	mtu = routes_choose_source(&source, (const struct sockaddr *)destination, (const char *)header + header->ip_hl * 4);
	header->ip_src = v4->sin_addr;
	return mtu;
}

/* A local error (no route, link down, buffer full) is a lost packet: retransmission and failover must go on, so *result is 0. */
void sctp_userspace_ip_output(int *result, struct mbuf *packet, void *route, void *tcb, uint32_t vrf)
{
	struct sockaddr_in destination = { .sin_family = AF_INET };
	struct ip *header = (struct ip *)outgoing;
	int length = flatten(packet);
	uint32_t mtu;

	(void)tcb, (void)vrf;
	*result = 0;
	if (length < (int)sizeof(*header) + COMMON_HEADER)
		return;
	header->ip_len = htons((uint16_t)length);
	destination.sin_addr = header->ip_dst;
	note_own(&own4, interfaces_has4(header->ip_dst));
	mtu = choose_source4(header, &destination);
	if (mtu == 0 || (uint32_t)length <= mtu) {
		if (sendto(raw4.fd, outgoing, (size_t)length, MSG_DONTWAIT, (struct sockaddr *)&destination, sizeof(destination)) >= 0 ||
		    errno != EMSGSIZE) {
			tell_mtu(route, mtu);
			return;
		}
		routes_forget(); /* the link's MTU is another one just now */
		mtu = choose_source4(header, &destination);
	}
	tell_mtu(route, mtu);
	send_fragmented(length, &destination);
}

void sctp_userspace_ip6_output(int *result, struct mbuf *packet, void *route, void *tcb, uint32_t vrf)
{
	struct sockaddr_in6 destination = { .sin6_family = AF_INET6 };
	const struct ip6_hdr *header = (const struct ip6_hdr *)outgoing;
	char control[CMSG_SPACE(sizeof(struct in6_pktinfo))] = { 0 };
	int length = flatten(packet);
	struct sockaddr_in6 source = { .sin6_family = AF_INET6 };
	struct in6_pktinfo from = { 0 };
	struct iovec vector = { outgoing + sizeof(*header), (size_t)length - sizeof(*header) };
	struct msghdr message = { .msg_name = &destination, .msg_namelen = sizeof(destination), .msg_iov = &vector,
				  .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	struct cmsghdr *item = CMSG_FIRSTHDR(&message);

	(void)tcb, (void)vrf;
	*result = 0;
	if (length < (int)sizeof(*header) + COMMON_HEADER)
		return;
	destination.sin6_addr = header->ip6_dst;
	note_own(&own6, interfaces_known(&destination) != NULL);
	source.sin6_addr = header->ip6_src;
	tell_mtu(route, routes_choose_source(&source, (struct sockaddr *)&destination, outgoing + sizeof(*header)));
	from.ipi6_addr = source.sin6_addr;
	if (IN6_IS_ADDR_LINKLOCAL(&destination.sin6_addr))
		destination.sin6_scope_id = from.ipi6_ifindex = interfaces_index_of(&source);
	item->cmsg_level = IPPROTO_IPV6;
	item->cmsg_type = IPV6_PKTINFO;
	item->cmsg_len = CMSG_LEN(sizeof(from));
	memcpy(CMSG_DATA(item), &from, sizeof(from));
	sendmsg(raw6.fd, &message, MSG_DONTWAIT);
}
