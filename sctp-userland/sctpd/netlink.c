#include "netlink.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

#include "interfaces.h"
#include "loop.h"
#include "routes.h"

static void ready(struct watch *watch, uint32_t events);
static struct watch netlink = { -1, EPOLLIN, ready };
static uint32_t dump;	      /* number of the last one asked for */
static bool dumping, missed; /* it goes on; something was lost, or changed while it was told */

static void address_message(const struct nlmsghdr *header)
{
	const struct ifaddrmsg *message = NLMSG_DATA(header);
	int left = (int)header->nlmsg_len - (int)NLMSG_LENGTH(sizeof(*message));
	const void *address = NULL, *local = NULL;
	struct sockaddr_in6 value = { 0 };
	struct rtattr *attribute;

	for (attribute = IFA_RTA(message); RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
		if (attribute->rta_type == IFA_ADDRESS)
			address = RTA_DATA(attribute);
		else if (attribute->rta_type == IFA_LOCAL)
			local = RTA_DATA(attribute);
	}
	if (local == NULL)
		local = address;
	if (local == NULL || (message->ifa_family != AF_INET && message->ifa_family != AF_INET6))
		return;
	value.sin6_family = message->ifa_family;
	if (message->ifa_family == AF_INET)
		memcpy(&((struct sockaddr_in *)&value)->sin_addr, local, sizeof(struct in_addr));
	else
		memcpy(&value.sin6_addr, local, sizeof(value.sin6_addr));
	interfaces_change(header->nlmsg_type == RTM_NEWADDR, message->ifa_index, &value);
}

/* Ask for all addresses; what isn't told of until its end is gone. The kernel answers one such question at a time. */
static int ask_for_all(void)
{
	struct {
		struct nlmsghdr header;
		struct rtgenmsg body;
	} request = { { NLMSG_LENGTH(sizeof(struct rtgenmsg)), RTM_GETADDR, NLM_F_REQUEST | NLM_F_DUMP, dump + 1, 0 }, { AF_UNSPEC } };

	if (send(netlink.fd, &request, request.header.nlmsg_len, 0) < 0)
		return -errno;
	dump++;
	dumping = true;
	interfaces_tell_all();
	return 0;
}

static void message(const struct nlmsghdr *header)
{
	if (header->nlmsg_type == RTM_NEWADDR || header->nlmsg_type == RTM_DELADDR)
		address_message(header);
	if (header->nlmsg_seq != dump)
		return;
	missed |= header->nlmsg_flags & NLM_F_DUMP_INTR;
	if (header->nlmsg_type != NLMSG_DONE && header->nlmsg_type != NLMSG_ERROR)
		return;
	dumping = false;
	if (header->nlmsg_type == NLMSG_ERROR)
		log_line("the kernel doesn't tell all addresses");
	else if (!missed)
		interfaces_told_all();
}

static void ready(struct watch *watch, uint32_t)
{
	char buffer[32768] __attribute__((aligned(NLMSG_ALIGNTO)));
	ssize_t length;

	for (;;) {
		struct nlmsghdr *header;
		unsigned int left;

		length = recv(watch->fd, buffer, sizeof(buffer), MSG_DONTWAIT);
		if (length > 0) {
			routes_forget();
			left = (unsigned int)length;
			for (header = (struct nlmsghdr *)buffer; NLMSG_OK(header, left); header = NLMSG_NEXT(header, left))
				message(header);
		} else if (length < 0 && errno == ENOBUFS) {
			routes_forget();
			missed = true; /* and until all that is there has been read, more is lost without a word */
		} else if (missed && !dumping && ask_for_all() == 0) {
			missed = false;
		} else {
			break;
		}
	}
}

void netlink_catch_up(void)
{
	ready(&netlink, EPOLLIN);
}

int netlink_watch(void)
{
	struct sockaddr_nl groups = { .nl_family = AF_NETLINK,
				      .nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | RTMGRP_IPV4_ROUTE |
						   RTMGRP_IPV6_ROUTE | RTMGRP_LINK };

	netlink.fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (netlink.fd < 0)
		return -errno;
	if (bind(netlink.fd, (struct sockaddr *)&groups, sizeof(groups)) < 0 || ask_for_all() < 0)
		return -errno;
	ready(&netlink, EPOLLIN);
	return loop_add(&netlink);
}
