/* The unix socket: takes answers and the lease from the backend, tells the status and decisions to anybody. */
#ifndef FASTPATH_SERVER_H
#define FASTPATH_SERVER_H

#include "program.h"
#include "table.h"

/* Serve at this listening socket until a signal or a request to detach comes. Returns 0, or -1 with errno. */
int server_run(int listener, struct program *program, struct table *table);

#endif
