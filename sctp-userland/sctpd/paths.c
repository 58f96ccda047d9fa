/* Where no path is alive usrsctp keeps new data until a heartbeat is answered. A kernel sends it none the less, and a path may count as dead that is
 * not: the first INITs were lost; or messages were, each of which came at the second try, and that does not speak for the path (Karn's rule). So
 * heartbeats are sent at once, and again after a time that doubles, until one is answered. A peer that stays silent ends its association as ever. */
#include "paths.h"

#include "bound.h"
#include "interfaces.h"
#include "stack.h"

#define LAST_MS 30000 /* from then on usrsctp's own do as well */

/* Ask the dead paths of an association that has no other, or also beside others. Return whether it has no other. */
static bool ask(struct sctp_socket *s, sctp_assoc_t association, bool beside_others)
{
	struct sockaddr *list = NULL;
	int i, alive = 0, count = usrsctp_getpaddrs(s->so, association, &list), turn;

	for (turn = 0; turn < 2; turn++) { /* look, then ask */
		const char *from = (const char *)list;

		for (i = 0; i < count && (turn == 0 || alive == 0 || beside_others); i++) {
			const struct sockaddr_in6 address = address_next(&from), peer = address_unmapped((const struct sockaddr *)&address);
			struct sctp_paddrinfo path = { .spinfo_assoc_id = association };
			struct sctp_paddrparams now = { .spp_assoc_id = association, .spp_flags = SPP_HB_DEMAND };
			socklen_t length = sizeof(path);

			memcpy(&path.spinfo_address, &address, sizeof(address));
			memcpy(&now.spp_address, &address, sizeof(address));
			s->near |= interfaces_known(&peer) != NULL;
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
	return count > 0 && alive == 0;
}

void paths_begin(struct sctp_socket *s, sctp_assoc_t association)
{
	ask(s, association, true);
}

void paths_look(struct sctp_socket *s)
{
	const sctp_assoc_t *associations;
	bool is_any_dead = false;
	uint32_t i, count;

	if (s->path_wait_ms == 0 || loop_now_ms() < s->path_asked_ms + s->path_wait_ms)
		return;
	count = stack_association_list(s, &associations);
	for (i = 0; i < count; i++)
		is_any_dead |= ask(s, associations[i], false);
	s->path_asked_ms = loop_now_ms();
	s->path_wait_ms = !is_any_dead ? 0 : s->path_wait_ms < LAST_MS ? 2 * s->path_wait_ms : LAST_MS;
}

void paths_note_sent(struct sctp_socket *s)
{
	if (s->path_wait_ms > PATHS_FIRST_MS)
		s->path_wait_ms = PATHS_FIRST_MS;
}
