#ifndef ANNOUNCE_H
#define ANNOUNCE_H

#include <stdbool.h>

/* Take over from the library what is told to peers; false: it isn't the library that is known. */
bool announce_prepare(void);

#endif
