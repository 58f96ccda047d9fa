/* The end of descriptors of sockets in whose queues others may lie, which nobody has read: closing them would wait for those that linger. */
#ifndef DISPOSAL_H
#define DISPOSAL_H

#include <stdbool.h>
#include <sys/types.h>

/* Get ready, while few descriptors are open. Where the kernel can't (before Linux 5.9), none can be added. */
void disposal_start(void);

/* Have this user's socket closed, soon. Return false when that can't be: it is the caller's still. */
bool disposal_add(uid_t user, int fd);

/* Do so with those that wait. Return when that is due next, in ms; -1: never. */
int disposal_run(void);

#endif
