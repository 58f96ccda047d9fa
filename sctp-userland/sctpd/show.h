#ifndef SHOW_H
#define SHOW_H

#include <stdbool.h>

#include "../protocol.h"

#define REFUSES_USER "the one of this network namespace serves root, its own user and its --group, not this user: socket() fails with EACCES"

/* Print what the sctpd of this network namespace serves; return the exit status. */
int show_status(bool json);

enum show_answer {
	SHOW_NONE,     /* none runs, or it ends just now, or refuses */
	SHOW_SERVES,
	SHOW_SILENT,   /* no answer for some seconds */
	SHOW_REFUSES,  /* this user */
	SHOW_STRANGER, /* the name is held by a user whose sctpd isn't to be believed: neither root, nor the service's user, nor oneself */
};

/* Whether an sctpd runs in this network namespace and answers. It then counts its idle time anew. */
enum show_answer show_answers(void);

#endif
