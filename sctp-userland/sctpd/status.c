#include "status.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bound.h"
#include "sockets.h"
#include "stack.h"
#include "translate.h"

#define ONE_PATH 512
#define ONE_ASSOCIATION (24 * 1024) /* bytes; an association's paths beyond these aren't shown */

struct text {
	char *at;
	size_t room, length;
};

static void add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct text *text, const char *format, ...)
{
	va_list arguments;
	int wrote;

	va_start(arguments, format);
	wrote = vsnprintf(text->at + text->length, text->room - text->length, format, arguments);
	va_end(arguments);
	if (wrote > 0)
		text->length += (size_t)wrote < text->room - text->length ? (size_t)wrote : text->room - text->length - 1;
}

static bool has_room(const struct text *text)
{
	return text->room - text->length > ONE_ASSOCIATION;
}

static void add_address(struct text *text, const struct sockaddr *address)
{
	char name[INET6_ADDRSTRLEN] = "?";

	if (address->sa_family == AF_INET)
		inet_ntop(AF_INET, &((const struct sockaddr_in *)address)->sin_addr, name, sizeof(name));
	else if (address->sa_family == AF_INET6)
		inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)address)->sin6_addr, name, sizeof(name));
	add(text, "%s", name);
}

static const char *association_state(int32_t state)
{
	static const char *const names[] = { "closed",		 "closed",	     "cookie-wait",	   "cookie-echoed",    "established",
					     "shutdown-pending", "shutdown-sent", "shutdown-received", "shutdown-ack-sent" };

	return state >= 0 && state <= LX_SHUTDOWN_ACK_SENT ? names[state] : "unknown";
}

static const char *path_state(int32_t state)
{
	return state & SCTP_UNCONFIRMED ? "unconfirmed" : state & SCTP_ACTIVE ? "active" : "inactive";
}

static void add_paths(struct text *text, struct sctp_socket *s, uint32_t association, bool json)
{
	struct sockaddr *list = NULL;
	int i, count = usrsctp_getpaddrs(s->so, association, &list);
	size_t end = text->length + ONE_ASSOCIATION - ONE_PATH;
	const char *from = (const char *)list;

	for (i = 0; i < count && text->length < end; i++) {
		struct sctp_paddrinfo path = { .spinfo_assoc_id = association };
		socklen_t length = sizeof(path), size = address_length((const struct sockaddr *)from);

		memcpy(&path.spinfo_address, from, size);
		usrsctp_getsockopt(s->so, IPPROTO_SCTP, SCTP_GET_PEER_ADDR_INFO, &path, &length);
		add(text, json ? "%s{\"address\": \"" : "%s      path ", json && i > 0 ? ", " : "");
		add_address(text, (const struct sockaddr *)from);
		add(text, json ? "\", \"state\": \"%s\", \"rto_ms\": %u, \"srtt_ms\": %u, \"cwnd_bytes\": %u, \"mtu_bytes\": %u}"
			       : " %s rto=%ums srtt=%ums cwnd=%u mtu=%u\n",
		    path_state(path.spinfo_state), path.spinfo_rto, path.spinfo_srtt, path.spinfo_cwnd, path.spinfo_mtu);
		from += size;
	}
	if (count > 0)
		usrsctp_freepaddrs(list);
}

/* Return whether there was anything to write: one that is being freed is still in the list. */
static bool add_association(struct text *text, struct sctp_socket *s, uint32_t association, bool json, bool first)
{
	struct lx_status status;
	uint16_t port = 0;
	struct sockaddr_storage primary;

	if (translate_status(s, association, &status) != 0)
		return false;
	primary = status.primary.address;
	memcpy(&port, (const char *)&primary + 2, sizeof(port));
	add(text,
	    json ? "%s{\"association\": %u, \"state\": \"%s\", \"peer_port\": %u, \"unacknowledged\": %u, \"pending\": %u, \"window_bytes\": %u, "
		   "\"paths\": ["
		 : "%s    association %u %s peer-port=%u unacknowledged=%u pending=%u window=%u\n",
	    json && !first ? ", " : "", status.assoc_id, association_state(status.state), ntohs(port), status.unackdata,
	    status.penddata, status.rwnd);
	add_paths(text, s, association, json);
	add(text, "%s", json ? "]}" : "");
	return true;
}

static int ascending(const void *first, const void *second)
{
	sctp_assoc_t one = *(const sctp_assoc_t *)first, other = *(const sctp_assoc_t *)second;

	return one < other ? -1 : one > other;
}

/* Write those that come after this one (0: all); return the last one there was room for, STATUS_ALL: no more came. */
static uint32_t add_associations(struct text *text, struct sctp_socket *s, bool json, uint32_t after)
{
	const sctp_assoc_t *list = NULL;
	sctp_assoc_t *sorted;
	uint32_t i, count;

	if (IS_ONE_TO_ONE(s)) {
		add_association(text, s, 0, json, true);
		return STATUS_ALL;
	}
	count = stack_association_list(s->so, &list);
	if (count == 0)
		return STATUS_ALL;
	sorted = malloc(count * sizeof(*sorted));
	if (sorted == NULL)
		return after;
	memcpy(sorted, list, count * sizeof(*sorted));
	qsort(sorted, count, sizeof(*sorted), ascending);
	for (i = 0; i < count && has_room(text); i++)
		if (sorted[i] > after && add_association(text, s, sorted[i], json, after == 0))
			after = sorted[i];
	free(sorted);
	return i < count ? after : STATUS_ALL;
}

static void add_socket(struct text *text, const struct sctp_socket *s, bool json)
{
	int i;

	add(text,
	    json ? "{\"style\": \"%s\", \"state\": \"%s\", \"user\": %u, \"process\": %d, \"port\": %u, \"addresses\": ["
		 : "%s %s user=%u process=%d port=%u addresses=",
	    IS_ONE_TO_ONE(s) ? "one-to-one" : "one-to-many", socket_means(s)->name, s->owner.uid, (int)s->owner.pid, s->port);
	for (i = 0; i < s->bound_count; i++) {
		add(text, json ? "%s\"" : "%s", i > 0 ? (json ? ", " : ",") : "");
		add_address(text, (const struct sockaddr *)&s->bound[i]);
		add(text, "%s", json ? "\"" : "");
	}
	if (json)
		add(text, "], \"blocked\": %s, \"undelivered\": %s, \"associations\": [", s->blocked ? "true" : "false",
		    s->unsent != NULL ? "true" : "false");
	else
		add(text, "%s%s%s\n", s->bound_count == 0 ? "any" : "", s->blocked ? " send-buffer-full" : "",
		    s->unsent != NULL ? " program-does-not-read" : "");
}

bool status_text(char *to, size_t room, bool json, struct status_place *place, uint32_t *length)
{
	struct text text = { to, room, 0 };
	struct sctp_socket *s = sockets_first();
	bool begun = place->association != STATUS_ALL && place->socket != STATUS_BEGIN;

	while (s != NULL && s->number > place->socket)
		s = s->next;
	if (begun && (s == NULL || s->number != place->socket)) { /* it was closed meanwhile */
		add(&text, "%s", json ? "]},\n" : "");
		begun = false;
	} else if (!begun && s != NULL && s->number == place->socket) {
		s = s->next;
	}
	for (; s != NULL && has_room(&text); s = s->next) {
		if (!begun) {
			add_socket(&text, s, json);
			place->association = 0;
		}
		begun = false;
		place->socket = s->number;
		place->association = add_associations(&text, s, json, place->association);
		if (place->association != STATUS_ALL)
			break;
		add(&text, "%s", json ? "]},\n" : "");
	}
	*length = (uint32_t)text.length;
	return s != NULL;
}
