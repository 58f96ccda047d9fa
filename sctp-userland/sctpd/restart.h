#ifndef RESTART_H
#define RESTART_H

#include <stdbool.h>

/* Return false when the library isn't as expected. */
bool restart_prepare(void);

#endif
