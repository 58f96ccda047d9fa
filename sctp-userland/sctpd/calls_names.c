/* Addresses: bind, bindx, getsockname, getpeername, and the lists of both ends. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "admitted.h"
#include "routes.h"

int packed_addresses(const char *bytes, size_t length)
{
	int count = 0;

	while (length > 0) {
		struct sockaddr header;
		socklen_t size;

		if (length < sizeof(header))
			return -1;
		memcpy(&header, bytes, sizeof(header));
		size = address_length(&header);
		if (size == 0 || size > length)
			return -1;
		bytes += size;
		length -= size;
		count++;
	}
	return count;
}

bool packed_link_local(const char *bytes, size_t length)
{
	struct sockaddr_in6 address;

	while (length > 0) {
		socklen_t size;

		memcpy(&address, bytes, sizeof(struct sockaddr_in));
		size = address_length((struct sockaddr *)&address);
		memcpy(&address, bytes, size);
		if (address.sin6_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&address.sin6_addr))
			return true;
		bytes += size;
		length -= size;
	}
	return false;
}

static uint16_t port_of(const struct sockaddr *address)
{
	uint16_t port; /* at the same place in both families */

	memcpy(&port, (const char *)address + 2, sizeof(port));
	return ntohs(port);
}

void call_note_port(struct sctp_socket *s)
{
	struct sockaddr *list = NULL;

	if (s->port != 0)
		return;
	if (usrsctp_getladdrs(s->so, 0, &list) > 0)
		s->port = port_of(list);
	if (list != NULL)
		usrsctp_freeladdrs(list);
}

/* The first port anyone may bind (ip(7)); root may bind all. */
static uint16_t first_free_port(void)
{
	int port = IPPORT_RESERVED;
	FILE *file = fopen("/proc/sys/net/ipv4/ip_unprivileged_port_start", "re");

	if (file == NULL)
		return IPPORT_RESERVED;
	if (fscanf(file, "%d", &port) != 1)
		port = IPPORT_RESERVED;
	fclose(file);
	return (uint16_t)port;
}

/* Sharing a port (SCTP_REUSE_PORT) is for sockets of one user. */
static bool shares_with_stranger(const struct sctp_socket *s, uint16_t port)
{
	const struct sctp_socket *other;
	int shares = 0;
	socklen_t length = sizeof(shares);

	if (port == 0 || usrsctp_getsockopt(s->so, IPPROTO_SCTP, SCTP_REUSE_PORT, &shares, &length) < 0 || shares == 0)
		return false;
	for (other = sockets_first(); other != NULL; other = other->next)
		if (other->port == port && other->client->user != s->client->user)
			return true;
	return false;
}

/* Whether this caller may have this port; 0 or an errno. */
static int port_allowed(const struct call *call, const struct sctp_socket *s, uint16_t port)
{
	if (port != 0 && call->caller->user->id != 0 && port < first_free_port())
		return EACCES;
	return shares_with_stranger(s, port) ? EADDRINUSE : 0;
}

int call_bind(struct call *call, struct sctp_socket *s)
{
	struct sockaddr_in6 address = { 0 };
	size_t length = call->request->address_length;
	int error;

	if (length > sizeof(address) || packed_addresses(call->address, length) != 1)
		return EINVAL;
	memcpy(&address, call->address, length);
	if (s->domain == AF_INET && address.sin6_family != AF_INET)
		return EAFNOSUPPORT;
	if (s->port != 0)
		return EINVAL;
	if (packed_link_local(call->address, length))
		return EADDRNOTAVAIL;
	error = port_allowed(call, s, port_of((struct sockaddr *)&address));
	if (error != 0)
		return error;
	admitted_add(call->caller->user->id, (struct sockaddr *)&address);
	if (port_of((struct sockaddr *)&address) != 0) /* else any free one will do */
		sockets_reap(port_of((struct sockaddr *)&address));
	if (usrsctp_bind(s->so, (struct sockaddr *)&address, (socklen_t)length) < 0)
		return errno;
	socket_note_bound(s, (struct sockaddr *)&address);
	s->port = port_of((struct sockaddr *)&address);
	call_note_port(s);
	return 0;
}

int call_bindx(struct call *call, struct sctp_socket *s)
{
	const char *bytes = call->address;
	int i, error, count = packed_addresses(bytes, call->request->address_length);
	bool add = call->request->argument[0] == 1;

	if (count <= 0)
		return EINVAL;
	if (packed_link_local(bytes, call->request->address_length))
		return EADDRNOTAVAIL;
	for (i = 0; i < count; i++) {
		struct sockaddr_in6 address = { 0 };
		socklen_t length;
		uint16_t port;

		memcpy(&address, bytes, sizeof(struct sockaddr_in));
		length = address_length((struct sockaddr *)&address);
		memcpy(&address, bytes, length);
		bytes += length;
		port = port_of((struct sockaddr *)&address);
		if (s->port != 0 && port == 0)
			address.sin6_port = htons(s->port);
		else if (s->port != 0 && port != s->port)
			return EINVAL;
		error = add && s->port == 0 ? port_allowed(call, s, port) : 0;
		if (error != 0)
			return error;
		if (add && socket_is_bound_to(s, (struct sockaddr *)&address))
			return EINVAL;
		if (!add && s->bound_count <= 1)
			return EBUSY;
		if (add && s->bound_count == BOUND_MAX)
			return ENOBUFS;
		if (add)
			admitted_add(call->caller->user->id, (struct sockaddr *)&address);
		if (usrsctp_bindx(s->so, (struct sockaddr *)&address, 1, add ? SCTP_BINDX_ADD_ADDR : SCTP_BINDX_REM_ADDR) < 0)
			return errno;
		if (add)
			socket_note_bound(s, (struct sockaddr *)&address);
		else
			socket_forget_bound(s, (struct sockaddr *)&address);
		s->port = port != 0 ? port : s->port;
		call_note_port(s);
	}
	return 0;
}

static int give_list(struct call *call, const struct sockaddr *list, int count, int domain)
{
	const char *from = (const char *)list;
	int i;

	for (i = 0; i < count; i++) {
		struct sockaddr_in6 address = { 0 };
		socklen_t own = address_length((const struct sockaddr *)from), length;

		memcpy(&address, from, own);
		length = address_map(&address, domain);
		if (length == 0 || call->reply.address_length + length > ADDRESSES_MAX)
			break;
		memcpy(call->result + call->reply.address_length, &address, length);
		call->reply.address_length += length;
		from += own;
	}
	call->reply.result = i;
	return 0;
}

static int local_name(struct call *call, struct sctp_socket *s)
{
	struct sockaddr_in6 name = { .sin6_family = (sa_family_t)s->domain };
	struct sockaddr *peers = NULL;

	call_note_port(s);
	if (s->bound_count == 1 && !s->bound_any) {
		name = s->bound[0];
	} else if (IS_ONE_TO_ONE(s) && s->was_connected && usrsctp_getpaddrs(s->so, 0, &peers) > 0) {
		name = routes_source_to(peers); /* of the path, as in Linux */
		usrsctp_freepaddrs(peers);
	} else if (s->peer.sin6_family != AF_UNSPEC) { /* it is over */
		name = routes_source_to((struct sockaddr *)&s->peer);
	}
	name.sin6_port = htons(s->port);
	call->reply.address_length = address_map(&name, s->domain);
	memcpy(call->result, &name, call->reply.address_length);
	return 0;
}

/* Arguments: 0 the name, 1 all addresses; the association. */
int call_names(struct call *call, struct sctp_socket *s)
{
	bool local = call->request->operation == OP_GETSOCKNAME, all = call->request->argument[0] != 0;
	sctp_assoc_t association = IS_ONE_TO_ONE(s) ? 0 : (sctp_assoc_t)call->request->argument[1];
	struct sockaddr *list = NULL;
	int count;

	if (local && !all)
		return local_name(call, s);
	if (!local && !all && !IS_ONE_TO_ONE(s))
		return ENOTCONN;
	count = local ? usrsctp_getladdrs(s->so, association, &list) : usrsctp_getpaddrs(s->so, association, &list);
	if (count <= 0 && !local && !all && s->peer.sin6_family != AF_UNSPEC)
		return give_list(call, (struct sockaddr *)&s->peer, 1, s->domain);
	if (count <= 0)
		return local ? EINVAL : all ? EINVAL : ENOTCONN;
	give_list(call, list, all ? count : 1, s->domain);
	if (local)
		usrsctp_freeladdrs(list);
	else
		usrsctp_freepaddrs(list);
	return 0;
}
