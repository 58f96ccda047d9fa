/* ICMP errors that say that a host, or a firewall, takes no SCTP: a connect() in TCP's place need not wait for silence. Other associations take no
 * notice of them (RFC 9260 section 10 allows that), as anybody on the way can send them. */
#include "refusals.h"

#include <errno.h>
#include <time.h> /* the next one needs it */
#include <linux/errqueue.h>
#include <linux/filter.h>
#include <netinet/icmp6.h>
#include <netinet/ip_icmp.h>
#include <string.h>

#include "bound.h"
#include "loop.h"
#include "shim.h"
#include "usrsctp_internal.h"

#define PER_TURN 16
#define INIT 1

/* The beginning of the packet of ours that the error quotes. */
struct quoted {
	uint16_t port, peers_port;
	uint32_t zero_tag;
	uint32_t checksum;
	uint8_t type, flags;
	uint16_t length;
	uint32_t tag;
};

static bool refuses(const struct sock_extended_err *error)
{
	const int code = error->ee_code;

	if (error->ee_origin == SO_EE_ORIGIN_ICMP)
		return error->ee_type == ICMP_DEST_UNREACH && (code == ICMP_PROT_UNREACH || code == ICMP_PORT_UNREACH || code == ICMP_NET_ANO ||
							       code == ICMP_HOST_ANO || code == ICMP_PKT_FILTERED);
	return error->ee_origin == SO_EE_ORIGIN_ICMP6 &&
	       ((error->ee_type == ICMP6_DST_UNREACH && (code == ICMP6_DST_UNREACH_ADMIN || code == ICMP6_DST_UNREACH_NOPORT)) ||
		(error->ee_type == ICMP6_PARAM_PROB && code == ICMP6_PARAMPROB_NEXTHEADER));
}

/* An association has to have the tag that only the packet's readers know (RFC 9260 section 10, ICMP7). */
static bool is_ours(const struct quoted *quoted)
{
	struct timeval now;

	gettimeofday(&now, NULL);
	return quoted->type == INIT && quoted->zero_tag == 0 && !sctp_is_vtag_good(ntohl(quoted->tag), quoted->port, quoted->peers_port, &now);
}

/* Take the next error. Return whether there was one. */
static bool take(int fd)
{
	struct sockaddr_in6 peer = { 0 };
	char control[512];
	struct quoted quoted;
	struct iovec vector = { &quoted, sizeof(quoted) };
	struct msghdr message = { .msg_name = &peer, .msg_namelen = sizeof(peer), .msg_iov = &vector, .msg_iovlen = 1,
				  .msg_control = control, .msg_controllen = sizeof(control) };
	const ssize_t length = recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT);
	struct cmsghdr *item;

	if (length < 0)
		return false;
	for (item = CMSG_FIRSTHDR(&message); item != NULL; item = CMSG_NXTHDR(&message, item)) {
		const bool is_error = (item->cmsg_level == IPPROTO_IP && item->cmsg_type == IP_RECVERR) ||
				      (item->cmsg_level == IPPROTO_IPV6 && item->cmsg_type == IPV6_RECVERR);

		if (is_error && length == sizeof(quoted) && refuses((struct sock_extended_err *)CMSG_DATA(item)) && is_ours(&quoted)) {
			peer.sin6_port = quoted.peers_port; /* at the same place in both families */
			shim_refused_at(&peer, ntohs(quoted.port));
		}
	}
	return true;
}

static void ready(struct watch *watch, uint32_t)
{
	int i, error;
	socklen_t length = sizeof(error);

	for (i = 0; i < PER_TURN && take(watch->fd); i++)
		;
	getsockopt(watch->fd, SOL_SOCKET, SO_ERROR, &error, &length); /* it may have had no room for one, and says so again and again */
}

/* A socket that gets nothing else: an error would be told to the next packet that another one sends. Return 0 or -errno. */
static int open_one(struct watch *watch, int family)
{
	const struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
	const struct sock_fprog all = { 1, (struct sock_filter *)(uintptr_t)&nothing };
	const int yes = 1, fd = socket(family, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_SCTP);

	*watch = (struct watch){ fd, 0, ready };
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &all, sizeof(all)) < 0 ||
	    setsockopt(fd, family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6, family == AF_INET ? IP_RECVERR : IPV6_RECVERR, &yes, sizeof(yes)) < 0)
		return -errno;
	return loop_add(watch);
}

int refusals_watch(void)
{
	static struct watch v4, v6;
	int error = open_one(&v4, AF_INET);

	if (error == 0)
		error = open_one(&v6, AF_INET6);
	return error == -EAFNOSUPPORT ? 0 : error; /* IPv6 is off on this host */
}
