/* Closes what nobody here may wait for, in a thread of its own. */
#ifndef CLOSER_H
#define CLOSER_H

#include <stdbool.h>
#include <sys/types.h>

/* Close this descriptor, which a user passed or which may hold some that he passed, without waiting for it. */
void closer_close(uid_t user, int fd);

/* Whether so many of this user's wait to be closed that he is to bring no more. */
bool closer_is_behind(uid_t user);

#endif
