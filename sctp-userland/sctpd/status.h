/* What sctpd --status shows. */
#ifndef STATUS_H
#define STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Write what comes after *place, whole associations, into at most room bytes; set *place to the last that was written. Return whether there
 * is more; *length: bytes written. As text, or as JSON objects with a comma after each: put together they are right whatever has
 * changed in between. */
struct status_place;
bool status_text(char *to, size_t room, bool json, struct status_place *place, uint32_t *length);

#endif
