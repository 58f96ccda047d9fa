/* Closes what nobody here may wait for. */
#ifndef CLOSER_H
#define CLOSER_H

#include <sys/types.h>

/* Close this descriptor, which a user passed, by a task of his (tasks.h). Afterwards it isn't among this process's descriptors, and these are
 * this process's alone: also when the task never ends. */
void closer_close(uid_t user, int fd);

#endif
