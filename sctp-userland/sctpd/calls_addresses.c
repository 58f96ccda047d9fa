/* Addresses in calls: which of them and which port a socket gets (bind, bindx), and how they are told. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bound.h"
#include "calls.h"
#include "interfaces.h"
#include "lifecycle.h"
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
	const char *const end = bytes + length;

	while (bytes < end) {
		const struct sockaddr_in6 address = address_next(&bytes);

		if (address_is_link_local((const struct sockaddr *)&address))
			return true;
	}
	return false;
}

static int give_list(struct call *call, const struct sockaddr *list, int count, int domain)
{
	const char *from = (const char *)list;
	int i;

	for (i = 0; i < count; i++) {
		struct sockaddr_in6 address = address_next(&from);
		const socklen_t length = address_map(&address, domain);

		if (length == 0 || call->reply.address_length + length > ADDRESSES_MAX)
			break;
		memcpy(call->result + call->reply.address_length, &address, length);
		call->reply.address_length += length;
	}
	call->reply.result = i;
	return 0;
}

static int local_name(struct call *call, struct sctp_socket *s)
{
	struct sockaddr_in6 name = { .sin6_family = (sa_family_t)s->domain };
	struct sockaddr *peers = NULL;

	socket_note_port(s);
	if (s->bound_count == 1 && !socket_binds_all(s)) {
		name = s->bound[0];
	} else if (IS_ONE_TO_ONE(s) && socket_means(s)->had_connection && usrsctp_getpaddrs(s->so, 0, &peers) > 0) {
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
	if (count <= 0 && local && association == 0) /* it isn't bound */
		return 0;
	if (count <= 0)
		return all ? EINVAL : ENOTCONN;
	give_list(call, list, all ? count : 1, s->domain);
	if (local)
		usrsctp_freeladdrs(list);
	else
		usrsctp_freepaddrs(list);
	return 0;
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

bool call_reuses_addresses(const struct call *call)
{
	int yes = 0;
	socklen_t length = sizeof(yes);

	return getsockopt(call->passed, SOL_SOCKET, SO_REUSEADDR, &yes, &length) == 0 && yes != 0;
}

/* Whether a connection has this port whose listener may be gone: of all others usrsctp knows it. */
static bool is_of_accepted(const struct call *call, const struct sctp_socket *s, const struct sockaddr *address)
{
	const bool reuses = call_reuses_addresses(call);
	const struct sctp_socket *other;

	for (other = sockets_first(); other != NULL; other = other->next)
		if (other != s && other->made != BY_SOCKET && !(reuses && other->reuses) && !(s->v6only && other->domain == AF_INET) &&
		    socket_conflicts(other, address))
			return true;
	return false;
}

/* Whether this caller may have this address and port; 0 or an errno. */
static int may_bind(const struct call *call, const struct sctp_socket *s, const struct sockaddr *address)
{
	const uint16_t port = address_port(address);

	if (port == 0) /* any free one will do */
		return 0;
	if (call->caller->uid != 0 && port < first_free_port())
		return EACCES;
	sockets_reap(port, s);
	return is_of_accepted(call, s, address) ? EADDRINUSE : 0;
}

int call_bind(struct call *call, struct sctp_socket *s)
{
	struct sockaddr_in6 address = { 0 };
	size_t length = call->request->address_length;
	int error;

	memcpy(&address, call->address, length < sizeof(address) ? length : sizeof(address));
	if (length >= sizeof(struct sockaddr_in) && address.sin6_family != AF_UNSPEC &&
	    address_length((struct sockaddr *)&address) == 0)
		return EAFNOSUPPORT;
	if (length > sizeof(address) || packed_addresses(call->address, length) != 1 ||
	    (s->domain == AF_INET && address.sin6_family != AF_INET))
		return EINVAL;
	if (s->port != 0)
		return EINVAL;
	if (packed_link_local(call->address, length))
		return EADDRNOTAVAIL;
	error = may_bind(call, s, (struct sockaddr *)&address);
	if (error != 0)
		return error;
	interfaces_admit((struct sockaddr *)&address);
	if (address.sin6_port == 0)
		error = socket_choose_port(s, &address);
	else
		error = usrsctp_bind(s->so, (struct sockaddr *)&address, (socklen_t)length) < 0 ? errno : 0;
	if (error != 0)
		return error;
	socket_note_bound(s, (struct sockaddr *)&address);
	s->port = address_port((struct sockaddr *)&address);
	socket_note_port(s);
	return 0;
}

/* The next of packed addresses, on the socket's port if it names none. */
static struct sockaddr_in6 next_address(const struct sctp_socket *s, const char **bytes)
{
	struct sockaddr_in6 address = address_next(bytes);

	if (address.sin6_port == 0)
		address.sin6_port = htons(s->port);
	return address;
}

static int bind_another(struct call *call, struct sctp_socket *s, const struct sockaddr *address)
{
	int error;

	if ((s->port != 0 && address_port(address) != s->port) || socket_is_bound_to(s, address) ||
	    (s->port != 0 && address_is_any(address)))
		return EINVAL;
	if (s->bound_count == BOUND_MAX)
		return ENOBUFS;
	error = may_bind(call, s, address);
	if (error != 0)
		return error;
	interfaces_admit(address);
	if (usrsctp_bindx(s->so, (struct sockaddr *)(uintptr_t)address, 1, SCTP_BINDX_ADD_ADDR) < 0)
		return errno;
	socket_note_bound(s, address);
	s->port = address_port(address) != 0 ? address_port(address) : s->port;
	socket_note_port(s);
	return 0;
}

static int unbind(struct sctp_socket *s, const struct sockaddr *address)
{
	if (usrsctp_bindx(s->so, (struct sockaddr *)(uintptr_t)address, 1, SCTP_BINDX_REM_ADDR) < 0)
		return errno;
	socket_forget_bound(s, address);
	return 0;
}

/* All, or none: but a first bindx() leaves those it could bind, as in Linux. */
static int add_addresses(struct call *call, struct sctp_socket *s, int count)
{
	const char *bytes = call->address;
	const bool was_bound = s->bound_count > 0;
	int i, error = 0, added;

	for (added = 0; added < count && error == 0; added += error == 0) {
		struct sockaddr_in6 address = next_address(s, &bytes);

		error = bind_another(call, s, (struct sockaddr *)&address);
	}
	if (error == 0 || !was_bound)
		return error;
	for (bytes = call->address, i = 0; i < added; i++) {
		struct sockaddr_in6 address = next_address(s, &bytes);

		unbind(s, (struct sockaddr *)&address);
	}
	return error;
}

/* All, or none. */
static int remove_addresses(struct call *call, struct sctp_socket *s, int count)
{
	const char *bytes = call->address;
	struct sctp_socket after = *s;
	int i, error = 0;

	for (i = 0; i < count; i++) {
		struct sockaddr_in6 address = next_address(s, &bytes);

		if (after.bound_count <= 1)
			return EBUSY;
		if (address_port((struct sockaddr *)&address) != s->port || !socket_is_bound_to(&after, (struct sockaddr *)&address))
			return EINVAL;
		socket_forget_bound(&after, (struct sockaddr *)&address);
	}
	for (bytes = call->address, i = 0; i < count && error == 0; i++) {
		struct sockaddr_in6 address = next_address(s, &bytes);

		error = unbind(s, (struct sockaddr *)&address);
	}
	return error;
}

int call_bindx(struct call *call, struct sctp_socket *s)
{
	int count = packed_addresses(call->address, call->request->address_length);

	if (count <= 0)
		return EINVAL;
	if (packed_link_local(call->address, call->request->address_length))
		return EADDRNOTAVAIL;
	return call->request->argument[0] == 1 ? add_addresses(call, s, count) : remove_addresses(call, s, count);
}
