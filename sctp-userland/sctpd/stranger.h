/* A stranger that has sctpd's abstract name: any local program may take it while no sctpd runs. */
#ifndef STRANGER_H
#define STRANGER_H

#include <stdbool.h>

/* Whether a user whose sctpd isn't believed has the name, listening or not. The kernel says it (unix_diag, since Linux 5.3), so the stranger can
 * neither hide nor hold up the question. False, too, if the kernel doesn't say. */
bool stranger_has_name(void);

/* Log who that is, and how to end it; then `consequence`. */
void stranger_tell(const char *consequence);

#endif
