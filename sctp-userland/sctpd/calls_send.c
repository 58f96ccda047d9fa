/* Connecting and sending. */
#include <errno.h>
#include <string.h>

#include "lifecycle.h"
#include "bound.h"
#include "calls.h"
#include "expiry.h"
#include "limits.h"
#include "outbound.h"
#include "packets.h"
#include "routes.h"
#include "stack.h"
#include "translate.h"

/* The error that a kernel answers instead. */
static int linux_error(struct sctp_socket *s, int error)
{
	int pending = IS_ONE_TO_ONE(s) ? s->error : 0;

	switch (error) {
	case ENOENT:
	case ENOTCONN:
	case ECONNRESET:
	case ESHUTDOWN:
		s->error = 0;
		return pending != 0 ? pending : EPIPE;
	default:
		return error;
	}
}

#define KNOWN_FLAGS (LX_UNORDERED | LX_ADDR_OVER | LX_ABORT | LX_SACK_IMMEDIATELY | LX_PR_SCTP_MASK | LX_SENDALL | LX_EOF)

#define TO_ALL_MAX 1024 /* associations that one message may go to: the loop waits for it */

/* The bytes that a message takes that goes to all associations of this socket; UINT64_MAX: too many. */
static uint64_t queued_for_all(const struct sctp_socket *s, uint64_t length)
{
	const sctp_assoc_t *identifiers;
	uint32_t number = stack_association_list(s, &identifiers);

	return number > TO_ALL_MAX ? UINT64_MAX : number * length;
}

/* An association begins from a port. Return 0 or an errno. */
static int have_port(struct sctp_socket *s)
{
	struct sockaddr_in6 any = { .sin6_family = (sa_family_t)s->domain };

	socket_note_port(s);
	return s->port != 0 ? 0 : socket_choose_port(s, &any);
}

/* The association that a message is for, as far as that is known: 0 on a one-to-one socket. */
static uint32_t association_for(const struct sctp_socket *s, const struct send_parameters *send, struct sockaddr_in6 *to, bool addressed)
{
	if (IS_ONE_TO_ONE(s))
		return 0;
	return addressed ? usrsctp_getassocid(s->so, (struct sockaddr *)to) : send->association;
}

/* A message found no room. Return EAGAIN; EPIPE if its association never gets room again, since the peer has ended it. */
static int has_to_wait(struct call *call, struct sctp_socket *s, uint32_t association)
{
	struct lx_status status;

	call->reply.result = IS_ONE_TO_ONE(s) ? 1 : (int32_t)association;
	s->unasked = false;
	s->blocked = translate_status(s, association, &status) != 0 ||
		     (status.sstat_state != LX_SHUTDOWN_RECEIVED && status.sstat_state != LX_SHUTDOWN_ACK_SENT);
	return s->blocked ? EAGAIN : EPIPE;
}

/* Whether the association is over that a message has waited for. */
static bool waited_in_vain(const struct call *call, struct sctp_socket *s)
{
	const uint32_t association = (uint32_t)call->request->argument[0];
	struct lx_status status;

	return association != 0 && translate_status(s, IS_ONE_TO_ONE(s) ? 0 : association, &status) != 0;
}

static bool is_of_peer(const struct sctp_socket *s, struct sockaddr *address)
{
	return address_port(address) == address_port((const struct sockaddr *)&s->peer) && usrsctp_getassocid(s->so, address) != 0;
}

/* Whether an association would have to begin with this peer, to whom there is no route: Linux says so at once. */
static bool is_unreachable(const struct sctp_socket *s, struct sockaddr *peer)
{
	return usrsctp_getassocid(s->so, peer) == 0 && routes_lack(peer);
}

/* Whether the message was taken to be sent later, see expiry.c. That of an association that is to begin is not: it begins it. */
static bool waits_here(const struct call *call, struct sctp_socket *s, const struct send_parameters *send, struct sockaddr_in6 *to, bool addressed)
{
	const uint32_t association = association_for(s, send, to, addressed);
	struct lx_status status;

	if ((association == 0 && !IS_ONE_TO_ONE(s)) || send->flags & LX_ADDR_OVER || (s->held == NULL && send->pr_policy == 0) ||
	    translate_status(s, association, &status) != 0 || status.sstat_state != LX_ESTABLISHED || send->stream >= status.sstat_outstrms)
		return false;
	return expiry_holds(s, association, send, clock_ms(), call->data, call->request->data_length);
}

int call_send(struct call *call, struct sctp_socket *s)
{
	struct send_parameters whole;
	const struct send_parameters *send = &call->request->send;
	struct sockaddr_in6 to = { 0 };
	size_t length = call->request->address_length;
	uint64_t to_all = 0;
	int error;

	if (IS_ONE_TO_ONE(s) && s->state == SOCKET_LISTENS)
		return EPIPE;
	if (call->request->data_length > MESSAGE_MAX)
		return EMSGSIZE;
	if (s->made == BY_PEELING)
		length = 0; /* as in Linux */
	if (length > 0) {
		if (length > sizeof(to) || packed_addresses(call->address, length) != 1)
			return EINVAL;
		if (packed_link_local(call->address, length))
			return EADDRNOTAVAIL;
		memcpy(&to, call->address, length);
		length = address_unmap(&to);
	}
	whole = translate_defaults(s, association_for(s, send, &to, length > 0), *send);
	send = &whole;
	if (length > 0 && limits_reached() && usrsctp_getassocid(s->so, (struct sockaddr *)&to) == 0)
		return ENOBUFS;
	if (waited_in_vain(call, s))
		return ESRCH; /* what ended it is told by the next call */
	if (call->request->data_length > 0 && !outbound_has_room(s, association_for(s, send, &to, length > 0)))
		return has_to_wait(call, s, association_for(s, send, &to, length > 0));
	limits_note(call->request->data_length);
	if (send->flags & ~KNOWN_FLAGS || (IS_ONE_TO_ONE(s) && send->flags & (LX_ABORT | LX_EOF)))
		return EINVAL;
	if (length > 0 && IS_ONE_TO_ONE(s) && socket_means(s)->had_connection && !is_of_peer(s, (struct sockaddr *)&to)) {
		if (socket_means(s)->receives)
			return EADDRNOTAVAIL;
		return linux_error(s, ENOTCONN); /* that association is over, and it has no other */
	}
	if (send->flags & LX_SENDALL && send->flags & (LX_ABORT | LX_EOF))
		return EINVAL; /* usrsctp 0.9.5 would never free the endpoint again */
	if (send->flags & LX_EOF ? call->request->data_length > 0
				 : call->request->data_length == 0 && !(send->flags & LX_ABORT))
		return EINVAL;
	if (send->flags & LX_SENDALL) {
		to_all = queued_for_all(s, call->request->data_length);
		if (to_all == UINT64_MAX || limits_reached())
			return ENOBUFS;
	}
	if (length > 0 && !(send->flags & (LX_SENDALL | LX_ABORT | LX_EOF)) && !(IS_ONE_TO_ONE(s) && socket_means(s)->had_connection) &&
	    usrsctp_getassocid(s->so, (struct sockaddr *)&to) == 0) {
		error = routes_lack((struct sockaddr *)&to) ? ENETUNREACH : have_port(s);
		if (error != 0 || socket_would_take_over(s, (struct sockaddr *)&to))
			return error != 0 ? error : EADDRNOTAVAIL;
	}
	if (send->flags & (LX_SENDALL | LX_ABORT | LX_EOF))
		expiry_pass_all(s);
	else if (waits_here(call, s, send, &to, length > 0)) {
		call->reply.result = (int32_t)call->request->data_length;
		return 0;
	}
	if (translate_send(s, send, length > 0 ? &to : NULL, call->data, call->request->data_length) < 0) {
		error = linux_error(s, errno);
		s->blocked = false;
		return error == EAGAIN ? has_to_wait(call, s, association_for(s, send, &to, length > 0)) : error;
	}
	s->lost = 0;
	socket_went_on(s);
	if (to_all > 0)
		limits_note(to_all);
	if (length > 0 && IS_ONE_TO_ONE(s) && !socket_means(s)->had_connection) {
		socket_enter(s, SOCKET_CONNECTED);
		socket_note_peer(s);
	}
	socket_note_port(s);
	if (send->flags & (LX_ABORT | LX_EOF))
		outbound_change_way(s);
	else if (outbound_may_come(s, call->passed, association_for(s, send, &to, length > 0), (struct way *)(void *)call->result))
		call->reply.data_length = sizeof(struct way);
	call->reply.result = (int32_t)call->request->data_length;
	return 0;
}

static bool is_one_port(const char *addresses, int count)
{
	const uint16_t port = address_port((const struct sockaddr *)addresses);
	bool is_one = true;

	for (; count > 0; count--) {
		const struct sockaddr_in6 next = address_next(&addresses);

		is_one &= address_port((const struct sockaddr *)&next) == port;
	}
	return is_one;
}

/* Whether another socket has one with any of these. Its own one is another matter. */
static bool would_take_over(const struct sctp_socket *s, const char *addresses, int count)
{
	bool would = false;

	for (; count > 0; count--) {
		const struct sockaddr_in6 next = address_next(&addresses);

		would |= socket_would_take_over(s, (const struct sockaddr *)&next);
	}
	return would;
}

int call_connect(struct call *call, struct sctp_socket *s)
{
	char addresses[ADDRESSES_MAX] = "";
	size_t length = call->request->address_length;
	int count = packed_addresses(call->address, length), error = 0;
	struct sockaddr *first = (struct sockaddr *)addresses;
	struct sockaddr_in6 only = { 0 };
	sctp_assoc_t association = 0;

	if (count <= 0 || length > sizeof(addresses))
		return EINVAL;
	if (packed_link_local(call->address, length))
		return EADDRNOTAVAIL;
	memcpy(addresses, call->address, length);
	if (!is_one_port(addresses, count))
		return EINVAL;
	if (count == 1) { /* connectx itself takes mapped ones */
		memcpy(&only, addresses, length);
		address_unmap(&only);
		memcpy(addresses, &only, sizeof(only));
	}
	if (s->domain == AF_INET && first->sa_family != AF_INET)
		return EINVAL;
	if (s->state == SOCKET_LISTENS && IS_ONE_TO_ONE(s))
		return EISCONN;
	if (s->state == SOCKET_CONNECTING || (IS_ONE_TO_ONE(s) && socket_means(s)->had_connection))
		return s->state == SOCKET_CONNECTING ? EALREADY : EISCONN;
	if (is_unreachable(s, first))
		return ENETUNREACH;
	if (would_take_over(s, addresses, count))
		return EADDRNOTAVAIL;
	if (limits_reached())
		return ENOBUFS;
	s->error = 0;
	if (s->state == SOCKET_FAILED && (error = again_prepare(s)) != 0)
		return error;
	error = have_port(s);
	if (error != 0)
		return error;
	if (IS_ONE_TO_ONE(s) && count == 1)
		error = usrsctp_connect(s->so, first, address_length(first)) < 0 ? errno : 0;
	else
		error = usrsctp_connectx(s->so, first, count, &association) < 0 ? errno : 0;
	socket_note_port(s);
	if (error == EALREADY && !IS_ONE_TO_ONE(s)) {
		struct lx_status status;

		packets_take_waiting();
		if (translate_status(s, usrsctp_getassocid(s->so, first), &status) == 0 && status.sstat_state == LX_ESTABLISHED)
			error = EISCONN;
	}
	if (error != 0 && error != EINPROGRESS)
		return error;
	if (IS_ONE_TO_ONE(s))
		socket_enter(s, SOCKET_CONNECTING);
	else
		s->connecting_association = association;
	call->reply.result = (int32_t)association;
	return EINPROGRESS;
}
