#ifndef SHOW_H
#define SHOW_H

#include <stdbool.h>

/* Print what the sctpd of this network namespace serves; return the exit status. */
int show_status(bool json);

/* Whether an sctpd runs in this network namespace and answers. It then counts its idle time anew. */
bool show_answers(void);

#endif
