#include "status.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bound.h"
#include "sockets.h"
#include "stack.h"
#include "translate.h"

static void add_address(FILE *to, const struct sockaddr *address)
{
	char name[INET6_ADDRSTRLEN] = "?";

	if (address->sa_family == AF_INET)
		inet_ntop(AF_INET, &((const struct sockaddr_in *)address)->sin_addr, name, sizeof(name));
	else if (address->sa_family == AF_INET6)
		inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)address)->sin6_addr, name, sizeof(name));
	fputs(name, to);
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

static void add_paths(FILE *to, const struct sctp_socket *s, uint32_t association, bool json)
{
	struct sockaddr *list = NULL;
	int i, count = usrsctp_getpaddrs(s->so, association, &list);
	const char *from = (const char *)list;

	for (i = 0; i < count; i++) {
		const struct sockaddr_in6 address = address_next(&from);
		struct sctp_paddrinfo path = { .spinfo_assoc_id = association };
		socklen_t length = sizeof(path);

		memcpy(&path.spinfo_address, &address, sizeof(address));
		usrsctp_getsockopt(s->so, IPPROTO_SCTP, SCTP_GET_PEER_ADDR_INFO, &path, &length);
		fprintf(to, json ? "%s{\"address\": \"" : "%s      path ", json && i > 0 ? ", " : "");
		add_address(to, (const struct sockaddr *)&address);
		fprintf(to,
			json ? "\", \"state\": \"%s\", \"rto_ms\": %u, \"srtt_ms\": %u, \"cwnd_bytes\": %u, \"mtu_bytes\": %u}"
			     : " %s rto=%ums srtt=%ums cwnd=%u mtu=%u\n",
			path_state(path.spinfo_state), path.spinfo_rto, path.spinfo_srtt, path.spinfo_cwnd, path.spinfo_mtu);
	}
	if (count > 0)
		usrsctp_freepaddrs(list);
}

/* Return whether there was anything to write: one that is being freed is still in the list. */
static bool add_association(FILE *to, const struct sctp_socket *s, uint32_t association, bool json, bool first)
{
	struct lx_status status;
	struct sockaddr_storage primary;

	if (translate_status(s, association, &status) != 0)
		return false;
	primary = status.sstat_primary.spinfo_address;
	fprintf(to,
		json ? "%s{\"association\": %u, \"state\": \"%s\", \"peer_port\": %u, \"unacknowledged\": %u, \"pending\": %u, \"window_bytes\": %u, "
		       "\"paths\": ["
		     : "%s    association %u %s peer-port=%u unacknowledged=%u pending=%u window=%u\n",
		json && !first ? ", " : "", status.sstat_assoc_id, association_state(status.sstat_state), address_port((struct sockaddr *)&primary),
		status.sstat_unackdata, status.sstat_penddata, status.sstat_rwnd);
	add_paths(to, s, association, json);
	fputs(json ? "]}" : "", to);
	return true;
}

static void add_associations(FILE *to, const struct sctp_socket *s, bool json)
{
	const sctp_assoc_t *list;
	uint32_t i, count = stack_association_list(s, &list);
	bool first = true;

	for (i = 0; i < count; i++)
		if (add_association(to, s, list[i], json, first))
			first = false;
}

static void add_socket(FILE *to, const struct sctp_socket *s, bool json)
{
	int i;

	fprintf(to,
		json ? "{\"style\": \"%s\", \"state\": \"%s\", \"user\": %u, \"process\": %d, \"port\": %u, \"addresses\": ["
		     : "%s %s user=%u process=%d port=%u addresses=",
		s->shim != NULL ? "shim" : IS_ONE_TO_ONE(s) ? "one-to-one" : "one-to-many", socket_means(s)->name, s->owner.uid, (int)s->owner.pid, s->port);
	for (i = 0; i < s->bound_count; i++) {
		fprintf(to, json ? "%s\"" : "%s", i > 0 ? (json ? ", " : ",") : "");
		add_address(to, (const struct sockaddr *)&s->bound[i]);
		fputs(json ? "\"" : "", to);
	}
	if (json)
		fprintf(to, "], \"blocked\": %s, \"undelivered\": %s, \"associations\": [", s->blocked ? "true" : "false",
			s->unsent != NULL ? "true" : "false");
	else
		fprintf(to, "%s%s%s\n", s->bound_count == 0 ? "any" : "", s->blocked ? " send-buffer-full" : "",
			s->unsent != NULL ? " program-does-not-read" : "");
	add_associations(to, s, json);
	fputs(json ? "]}" : "", to);
}

int status_file(bool json)
{
	const struct sctp_socket *s;
	int file = memfd_create("sctpd-status", MFD_CLOEXEC), copy = file < 0 ? -1 : dup(file);
	FILE *to = copy < 0 ? NULL : fdopen(copy, "w");
	bool complete = false;

	if (to != NULL) {
		fprintf(to, json ? "{\"longest_turn_us\": %llu, \"latest_timer_ms\": %llu, \"found_by_net\": %llu, \"sockets\": ["
				 : "longest-turn=%lluus latest-timer=%llums found-by-net=%llu\n",
			(unsigned long long)loop_figures.longest_turn_us, (unsigned long long)loop_figures.latest_timer_ms,
			(unsigned long long)loop_figures.found_by_net);
		for (s = sockets_first(); s != NULL; s = s->next) {
			add_socket(to, s, json);
			fputs(json && s->next != NULL ? ",\n" : "", to);
		}
		fputs(json ? "]}\n" : sockets_first() == NULL ? "no sockets\n" : "", to);
		complete = !ferror(to);
		complete &= fclose(to) == 0;
	} else if (copy >= 0) {
		close(copy);
	}
	if (complete)
		return file;
	if (file >= 0)
		close(file);
	return -ENOBUFS;
}
