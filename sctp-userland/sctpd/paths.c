/* If no path is alive usrsctp keeps new data until a heartbeat is answered. A kernel sends it none the less, and a path may count as dead that is
 * not: the first INITs were lost; or messages were, each of which came at the second try, and that does not speak for the path (Karn's rule). So
 * where data waits for nothing else, a heartbeat is sent at once, and again after a time that doubles, until one is answered. While something is to
 * be acknowledged its retransmissions do that, and count as in a kernel. */
#include "paths.h"

#include "bound.h"
#include "interfaces.h"
#include "stack.h"
#include "translate.h"
#include "usrsctp_internal.h"

#define LAST_MS 30000 /* from about then on usrsctp's own heartbeats do as well */
#define PART 20 /* no more than one part in 20 of the time is spent on looking: a socket may have thousands of associations */

enum paths { SOME_ALIVE, ALL_DEAD, DATA_WAITS, ASKED };

static bool data_waits(const struct sctp_socket *s, sctp_assoc_t association)
{
	struct lx_status status;

	return translate_status(s, association, &status) == 0 && status.sstat_unackdata == 0 && translate_buffer_use(s, association).sending > 0;
}

/* See how they are; ask the dead ones of an association that has no other and data for them, or all dead ones. */
static enum paths ask(struct sctp_socket *s, sctp_assoc_t association, bool may_ask, bool always)
{
	struct sockaddr *list = NULL;
	int i, alive = 0, count = usrsctp_getpaddrs(s->so, association, &list), turn;
	bool waits = false, asks = false;

	for (turn = 0; turn < 2; turn++) { /* look, then ask */
		const char *from = (const char *)list;

		if (turn == 1) {
			waits = count > 0 && alive == 0 && data_waits(s, association);
			asks = count > 0 && may_ask && (always || waits);
		}
		for (i = 0; i < count && (turn == 0 || asks); i++) {
			const struct sockaddr_in6 address = address_next(&from), peer = address_unmapped((const struct sockaddr *)&address);
			struct sctp_paddrinfo path = { .spinfo_assoc_id = association };
			struct sctp_paddrparams now = { .spp_assoc_id = association, .spp_flags = SPP_HB_DEMAND };
			socklen_t length = sizeof(path);

			memcpy(&path.spinfo_address, &address, sizeof(address));
			memcpy(&now.spp_address, &address, sizeof(address));
			s->near |= interfaces_have(&peer);
			if (usrsctp_getsockopt(s->so, IPPROTO_SCTP, SCTP_GET_PEER_ADDR_INFO, &path, &length) < 0)
				continue;
			if (turn == 0)
				alive += (path.spinfo_state & (SCTP_ACTIVE | SCTP_UNCONFIRMED)) == SCTP_ACTIVE;
			else if (!(path.spinfo_state & (SCTP_ACTIVE | SCTP_UNCONFIRMED)))
				usrsctp_setsockopt(s->so, IPPROTO_SCTP, SCTP_PEER_ADDR_PARAMS, &now, sizeof(now));
		}
	}
	if (count > 0)
		usrsctp_freepaddrs(list);
	return count <= 0 || alive > 0 ? SOME_ALIVE : asks ? ASKED : waits ? DATA_WAITS : ALL_DEAD;
}

/* As a kernel: after its first timeout a path waits until a heartbeat is answered, and the others go on. If there is no other path,
 * usrsctp's heartbeats would count against the association as well. */
static void fail_over_at_once(struct sctp_socket *s, sctp_assoc_t association)
{
	struct path_thresholds now = { .address.ss_family = AF_INET, .association = association };
	socklen_t length = sizeof(now);
	struct sockaddr *list = NULL;
	const int count = usrsctp_getpaddrs(s->so, association, &list);

	if (count > 0)
		usrsctp_freepaddrs(list);
	if (count < 2 || usrsctp_getsockopt(s->so, IPPROTO_SCTP, PATH_THRESHOLDS, &now, &length) < 0)
		return;
	now.potentially_failed = 0;
	now.changes_primary = CHANGES_NEVER;
	usrsctp_setsockopt(s->so, IPPROTO_SCTP, PATH_THRESHOLDS, &now, sizeof(now));
}

void paths_begin(struct sctp_socket *s, sctp_assoc_t association)
{
	fail_over_at_once(s, association);
	if (ask(s, association, true, true) == ASKED)
		socket_doubt_paths(s);
}

void paths_look(struct sctp_socket *s)
{
	const uint64_t now_ms = loop_now_ms();
	const sctp_assoc_t *associations;
	enum paths worst = SOME_ALIVE, found;
	uint32_t i, count;

	if (s->path_wait_ms == 0)
		return;
	if (now_ms < s->path_next_ms) {
		s->path_due_ms = s->path_next_ms;
		sockets_wait_for_time();
		return;
	}
	count = stack_association_list(s, &associations);
	for (i = 0; i < count; i++) {
		found = ask(s, associations[i], now_ms >= s->path_asked_ms + s->path_wait_ms, false);
		worst = found > worst ? found : worst;
	}
	s->path_next_ms = now_ms + PART * (loop_now_ms() - now_ms + 1);
	if (worst == ASKED) {
		s->path_asked_ms = now_ms;
		s->path_wait_ms = s->path_wait_ms < LAST_MS ? 2 * s->path_wait_ms : LAST_MS;
	} else if (worst == SOME_ALIVE) {
		s->path_wait_ms = 0;
	}
	s->path_due_ms = 0; /* what is sent or acknowledged has it looked at again */
	if (worst >= DATA_WAITS) {
		s->path_due_ms = s->path_asked_ms + s->path_wait_ms;
		sockets_wait_for_time();
	}
}
