/* Another connect() on a one-to-one socket whose first one failed: usrsctp's sockets are good for one, Linux's for many. So the socket gets a
 * new one inside, bound as the old one was, with the options the program has set. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "sockets.h"

#define KEPT_MAX 64 /* options kept of one socket */

struct kept_option {
	struct kept_option *next;
	int level, option;
	size_t length;
	char value[];
};

void again_keep(struct sctp_socket *s, int level, int option, const char *value, size_t length)
{
	struct kept_option **link = &s->kept, *kept;
	int count = 0;

	if (!IS_ONE_TO_ONE(s) || s->was_connected)
		return;
	for (; *link != NULL; link = &(*link)->next)
		count++;
	if (count >= KEPT_MAX || (kept = malloc(sizeof(*kept) + length)) == NULL)
		return;
	*kept = (struct kept_option){ NULL, level, option, length };
	memcpy(kept->value, value, length);
	*link = kept;
}

void again_forget(struct sctp_socket *s)
{
	while (s->kept != NULL) {
		struct kept_option *kept = s->kept;

		s->kept = kept->next;
		free(kept);
	}
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
	s->failed_before = false;
	return 0;
}
