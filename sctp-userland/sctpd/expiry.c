/* usrsctp looks at a message's time to live only before it sends it again. So a message that has one, and would wait in usrsctp for the peer's window
 * or for congestion, waits here instead; and so does what comes after it for the same association. */
#include "expiry.h"

#include <errno.h>
#include <stdlib.h>

#include "inbound.h"
#include "notifications.h"
#include "translate.h"
#include "usrsctp_internal.h"

#define CHUNK_COST 256 /* bytes that a peer may count for each chunk in its window */

struct held {
	struct held *next;
	uint32_t association;
	uint32_t sent_ms;
	struct send_parameters send;
	size_t length;
	char bytes[];
};

static bool has_lifetime(const struct send_parameters *send)
{
	return send->pr_policy == LX_PR_SCTP_TTL && send->pr_value > 0;
}

static bool is_too_late(const struct send_parameters *send, uint32_t sent_ms)
{
	return has_lifetime(send) && clock_ms() - sent_ms >= send->pr_value;
}

/* Whether usrsctp would send it without waiting: there is room for all that is on its way. If nothing is on its way, there must be room for
 * its first chunk: usrsctp would probe a shut window with it, and a receiver may take that. */
static bool goes_at_once(struct sctp_socket *s, uint32_t association, size_t length)
{
	const size_t sending = translate_buffer_use(s, association).sending;
	struct lx_status status;

	if (translate_status(s, association, &status) != 0)
		return true;
	if (sending == 0)
		return (length < status.sstat_fragmentation_point ? length : status.sstat_fragmentation_point) <= status.sstat_rwnd;
	length += sending;
	return length <= status.sstat_primary.spinfo_cwnd && length + CHUNK_COST * ((unsigned int)status.sstat_unackdata + 1) <= status.sstat_rwnd;
}

static ssize_t pass_on(struct sctp_socket *s, const struct held *held)
{
	struct send_parameters send = held->send;

	if (has_lifetime(&send))
		send.pr_value = is_too_late(&send, held->sent_ms) ? 1 : send.pr_value - (clock_ms() - held->sent_ms);
	send.association = held->association;
	return translate_send(s, &send, NULL, held->bytes, held->length);
}

static void remove_held(struct sctp_socket *s, struct held **link)
{
	struct held *held = *link;

	*link = held->next;
	s->held_bytes -= sizeof(*held) + held->length;
	free(held);
	if (s->blocked) {
		s->blocked = false;
		socket_look(s);
	}
}

/* Whether something waits for this association. */
static bool is_waited_for(const struct sctp_socket *s, uint32_t association)
{
	const struct held *held = s->held;

	while (held != NULL && held->association != association)
		held = held->next;
	return held != NULL;
}

bool expiry_holds(struct sctp_socket *s, uint32_t association, const struct send_parameters *send, uint32_t sent_ms, const char *bytes,
		  size_t length)
{
	struct held *held, **link;

	if (!is_waited_for(s, association) &&
	    (!has_lifetime(send) || (goes_at_once(s, association, length) && !is_too_late(send, sent_ms))))
		return false;
	held = malloc(sizeof(*held) + length);
	if (held == NULL)
		return false;
	*held = (struct held){ NULL, association, sent_ms, *send, length };
	memcpy(held->bytes, bytes, length);
	for (link = &s->held; *link != NULL;)
		link = &(*link)->next;
	*link = held;
	sockets_wait_for_time(); /* usrsctp doesn't tell of each acknowledgement */
	s->held_bytes += sizeof(*held) + length;
	return true;
}

/* One look at all that waits. */
static void look(struct sctp_socket *s, bool all)
{
	struct held **link = &s->held;
	uint64_t stays = 0; /* a bit for each association for which something does, or for others that share it */

	while (*link != NULL) {
		struct held *held = *link;
		const uint64_t bit = 1ULL << held->association % 64;
		const bool too_late = !all && is_too_late(&held->send, held->sent_ms);
		bool passed = false, waits = false;

		if (!too_late && !all)
			waits = stays & bit || (has_lifetime(&held->send) && !goes_at_once(s, held->association, held->length));
		if (!too_late && !waits) {
			passed = pass_on(s, held) >= 0;
			waits = !passed && errno == EAGAIN && !all;
		}
		if (waits) {
			stays |= bit;
			link = &held->next;
			continue;
		}
		if (!passed)
			expiry_tell_failed(s, held->association, &held->send, held->bytes, held->length);
		remove_held(s, link);
	}
}

void expiry_look(struct sctp_socket *s)
{
	if (s->held != NULL)
		look(s, false);
}

void expiry_pass_all(struct sctp_socket *s)
{
	if (s->held != NULL)
		look(s, true);
}

void expiry_drop(struct sctp_socket *s)
{
	while (s->held != NULL)
		remove_held(s, &s->held);
}

/* As Linux tells it: each part that would have been a chunk of its own. */
void expiry_tell_failed(struct sctp_socket *s, uint32_t association, const struct send_parameters *send, const char *bytes, size_t length)
{
	static char told[MESSAGE_MAX + 256];
	struct inbound header = { .type = INBOUND_NOTIFICATION, .flags = INBOUND_EOR, .association = association };
	struct lx_status status;
	size_t done, part, size = length;

	if (s->state == SOCKET_GONE || socket_means(s)->discards)
		return;
	if (translate_status(s, association, &status) == 0 && status.sstat_fragmentation_point > 0) {
		size = status.sstat_fragmentation_point;
		header.association = association = status.sstat_assoc_id;
	}
	for (done = 0; done < length; done += part) {
		part = length - done < size ? length - done : size;
		socket_push(s, &header, told,
			    notification_send_failed(s, association, send, bytes + done, part, done == 0, done + part == length, told));
	}
}
