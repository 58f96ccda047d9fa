/* What sctpd --status shows. */
#ifndef STATUS_H
#define STATUS_H

#include <stdbool.h>
#include <stddef.h>

/* Write sockets from the first-th on, whole ones, into at most room bytes. Return the number of the next one to ask for, 0 when these were
 * the last; *length: bytes written. As text, or as JSON objects with a comma after each. */
int status_text(char *to, size_t room, bool json, int first, size_t *length);

#endif
