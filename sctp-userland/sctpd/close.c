/* Closing usrsctp's sockets as Linux closes its own: data that was never read ends the associations by ABORT; notifications don't matter, and what
 * was sent last still goes out.
 *
 * usrsctp aborts an association whose socket is closed when more data comes, and what was sent last is lost with it. A kernel throws away what comes
 * and ends in order. So the socket stays open here, without a client, until its associations are over. Meanwhile it is one of all sockets: its
 * addresses and its peers count. */
#include <errno.h>
#include <stdlib.h>

#include "close.h"
#include "sockets.h"
#include "stack.h"
#include "translate.h"
#include "usrsctp_internal.h"

/* Read until there is data or nothing: usrsctp itself asks only whether anything is left. */
static bool data_unread(struct socket *so)
{
	char bytes[4096];
	struct sockaddr_in6 from;
	struct sctp_rcvinfo info;
	ssize_t length;
	int flags;

	usrsctp_set_non_blocking(so, 1);
	do {
		socklen_t from_length = sizeof(from), info_length = sizeof(info);
		unsigned int info_type = SCTP_RECVV_NOINFO;

		flags = 0;
		length = usrsctp_recvv(so, bytes, sizeof(bytes), (struct sockaddr *)&from, &from_length, &info, &info_length,
				       &info_type, &flags);
	} while (length > 0 && flags & MSG_NOTIFICATION);
	return length > 0;
}

static bool ends_by_abort(struct socket *so)
{
	struct linger linger = { 0 };
	socklen_t length = sizeof(linger);

	return usrsctp_getsockopt(so, SOL_SOCKET, SO_LINGER, &linger, &length) == 0 && linger.l_onoff && linger.l_linger == 0;
}

/* The identifiers of its associations; of a one-to-one socket it is always 0. */
static uint32_t associations(struct sctp_socket *s, const sctp_assoc_t **identifiers)
{
	static const sctp_assoc_t only[] = { 0 };
	struct lx_status status;

	*identifiers = only;
	if (IS_ONE_TO_ONE(s))
		return translate_status(s, 0, &status) == 0;
	return stack_association_list(s->so, identifiers);
}

/* Whether associations are to end in order; one that has not begun is forgotten at once, unless something was sent. */
static bool has_to_wait(struct sctp_socket *s)
{
	const sctp_assoc_t *identifiers;
	uint32_t i, count = associations(s, &identifiers);
	struct lx_status status;
	struct buffer_use use;
	bool waits = false;

	for (i = 0; i < count; i++) {
		if (translate_status(s, identifiers[i], &status) != 0)
			continue;
		use = translate_buffer_use(s, identifiers[i]);
		if (use.receiving > 0) /* part of a message, whose rest didn't come: it was never read, either */
			return false; /* usrsctp itself does what is right for each */
		waits |= status.state >= LX_ESTABLISHED || use.sending > 0;
	}
	return waits;
}

bool closing_has_ended(struct sctp_socket *s)
{
	const sctp_assoc_t *identifiers;
	uint32_t i, count = associations(s, &identifiers);
	struct lx_status status;

	for (i = 0; i < count; i++) {
		struct sctp_sndinfo end = { .snd_assoc_id = identifiers[i], .snd_flags = SCTP_EOF };

		if (translate_status(s, identifiers[i], &status) != 0 || status.state != LX_ESTABLISHED)
			continue;
		if (IS_ONE_TO_ONE(s))
			usrsctp_shutdown(s->so, SHUT_WR);
		else
			usrsctp_sendv(s->so, "", 0, NULL, 0, &end, sizeof(end), SCTP_SENDV_SNDINFO, 0);
	}
	return count == 0;
}

void close_stack_socket(const struct sctp_socket *s, struct socket *so, bool abort)
{
	const struct linger linger = { 1, 0 };
	struct sctp_socket of = { .so = so, .type = so == s->so ? s->type : SOCK_STREAM };

	abort |= data_unread(so);
	if (!abort && !ends_by_abort(so) && has_to_wait(&of)) {
		if (!IS_ONE_TO_ONE(&of))
			usrsctp_listen(so, 0);
		if (socket_create_closing(&of, s))
			return;
		abort = true; /* no memory */
	}
	if (abort)
		usrsctp_setsockopt(so, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	usrsctp_close(so);
}
