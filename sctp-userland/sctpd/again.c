/* Another connect() on a one-to-one socket whose first one failed: usrsctp's sockets are good for one, Linux's for many. So the socket gets a
 * new one inside, bound as the old one was, with the options the program has set. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "again.h"
#include "options.h"
#include "sockets.h"

#define KEPT_BYTES 4096 /* of one socket */

struct kept_option {
	struct kept_option *next;
	int level, option;
	size_t length;
	char value[];
};

static void forget(struct sctp_socket *s, struct kept_option **link)
{
	struct kept_option *kept = *link;

	*link = kept->next;
	s->kept_bytes -= sizeof(*kept) + kept->length;
	free(kept);
}

/* Make room: of this option the oldest value goes first, as several may count (one for each event, or address). */
static bool has_room(struct sctp_socket *s, int level, int option, size_t size)
{
	struct kept_option **link = &s->kept;

	while (s->kept_bytes + size > KEPT_BYTES && *link != NULL)
		if ((*link)->level == level && (*link)->option == option)
			forget(s, link);
		else
			link = &(*link)->next;
	return s->kept_bytes + size <= KEPT_BYTES;
}

void again_keep(struct sctp_socket *s, int level, int option, const char *value, size_t length)
{
	size_t size = sizeof(struct kept_option) + length;
	struct kept_option **link, *kept;

	if (!IS_ONE_TO_ONE(s) || socket_means(s)->had_connection || (level != IPPROTO_SCTP && level != SOL_SOCKET) ||
	    !has_room(s, level, option, size) || (kept = malloc(size)) == NULL)
		return;
	for (link = &s->kept; *link != NULL;)
		link = &(*link)->next;
	*kept = (struct kept_option){ NULL, level, option, length };
	memcpy(kept->value, value, length);
	*link = kept;
	s->kept_bytes += size;
}

void again_forget(struct sctp_socket *s)
{
	while (s->kept != NULL)
		forget(s, &s->kept);
}

int again_prepare(struct sctp_socket *s)
{
	struct socket *fresh = usrsctp_socket(s->domain, s->type, IPPROTO_SCTP, NULL, NULL, 0, NULL);
	const struct kept_option *kept;
	int i;

	if (fresh == NULL)
		return errno;
	socket_replace(s, fresh);
	options_prepare(s);
	for (kept = s->kept; kept != NULL; kept = kept->next)
		options_set(s, kept->level, kept->option, kept->value, kept->length);
	for (i = 0; i < s->bound_count; i++) {
		struct sockaddr_in6 address = s->bound[i];

		address.sin6_port = htons(s->port);
		if (usrsctp_bindx(s->so, (struct sockaddr *)&address, 1, SCTP_BINDX_ADD_ADDR) < 0)
			return errno;
	}
	if (s->bound_count == 0)
		s->port = 0;
	socket_enter(s, SOCKET_OPEN);
	return 0;
}
