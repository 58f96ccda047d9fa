/* Addresses as they come and go in calls: getsockname, getpeername, and the lists of both ends. */
#include <errno.h>
#include <string.h>

#include "bound.h"
#include "calls.h"
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

struct sockaddr_in6 packed_next(const char **bytes)
{
	struct sockaddr_in6 address = { 0 };
	const socklen_t length = address_length((const struct sockaddr *)*bytes);

	memcpy(&address, *bytes, length);
	*bytes += length;
	return address;
}

bool packed_link_local(const char *bytes, size_t length)
{
	const char *const end = bytes + length;

	while (bytes < end) {
		const struct sockaddr_in6 address = packed_next(&bytes);

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
		struct sockaddr_in6 address = packed_next(&from);
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
	if (s->bound_count == 1 && !s->bound_any) {
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
