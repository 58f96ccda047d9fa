/* Closing usrsctp's sockets as Linux closes its own: what was never read ends the associations by ABORT if it is data; of notifications the
 * peer needn't know, and what was sent last still goes out. */
#include <errno.h>

#include "sockets.h"
#include "stack.h"

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

static sctp_assoc_t only_association(struct socket *so)
{
	struct sctp_status status = { 0 };
	socklen_t length = sizeof(status);

	return usrsctp_getsockopt(so, IPPROTO_SCTP, SCTP_STATUS, &status, &length) < 0 ? 0 : status.sstat_assoc_id;
}

/* Remember those that go on; false: no memory. */
static bool keep_associations(const struct sctp_socket *s, struct socket *so)
{
	const sctp_assoc_t *identifiers = NULL;
	uint32_t i, count;

	if (so != s->so || IS_ONE_TO_ONE(s))
		return closed_keep(s, so, only_association(so));
	count = stack_association_list(so, &identifiers);
	for (i = 0; i < count; i++)
		if (!closed_keep(s, so, identifiers[i]))
			return false;
	return true;
}

void close_stack_socket(const struct sctp_socket *s, struct socket *so, bool abort)
{
	const struct linger linger = { 1, 0 };

	if (abort || data_unread(so) || !keep_associations(s, so))
		usrsctp_setsockopt(so, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	usrsctp_close(so);
}
