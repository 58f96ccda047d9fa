/* The system below the gate, for gate_preload.c: it receives what the test says, and knows peers' addresses or fails to. */
#include "gate_preload_system.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/sctp.h>
#include <stdlib.h>
#include <string.h>

struct system_below below;

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	struct sctp_sndrcvinfo info = { .sinfo_assoc_id = 7, .sinfo_ppid = htonl(11) };
	struct cmsghdr *item = CMSG_FIRSTHDR(message);

	(void)fd;
	(void)flags;
	memcpy(message->msg_iov[0].iov_base, below.bytes, below.length);
	item->cmsg_level = IPPROTO_SCTP;
	item->cmsg_type = SCTP_SNDRCV;
	item->cmsg_len = CMSG_LEN(sizeof(info));
	memcpy(CMSG_DATA(item), &info, sizeof(info));
	message->msg_controllen = CMSG_SPACE(sizeof(info));
	message->msg_flags = below.is_notification ? MSG_EOR | MSG_NOTIFICATION : MSG_EOR;
	return (ssize_t)below.length;
}

int sctp_getpaddrs(int fd, sctp_assoc_t association, struct sockaddr **addresses)
{
	struct sockaddr_in *peer;

	(void)fd;
	(void)association;
	if (below.failures) {
		below.failures--;
		errno = EINVAL;
		return -1;
	}
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return -1;
	peer->sin_family = AF_INET;
	peer->sin_addr.s_addr = htonl(0x0a000002);
	*addresses = (struct sockaddr *)peer;
	return 1;
}

int sctp_freepaddrs(struct sockaddr *addresses)
{
	free(addresses);
	return 0;
}

int getsockopt(int fd, int level, int name, void *value, socklen_t *length)
{
	struct sctp_paddrinfo *info = value;

	(void)fd;
	(void)length;
	if (level != IPPROTO_SCTP || name != SCTP_GET_PEER_ADDR_INFO) {
		errno = ENOPROTOOPT;
		return -1;
	}
	below.asked++;
	info->spinfo_state = below.is_unconfirmed ? SCTP_UNCONFIRMED : SCTP_ACTIVE;
	return 0;
}
