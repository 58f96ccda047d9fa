#ifndef PASSED_H
#define PASSED_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

/* One descriptor is kept to be given up when there are no more: for what comes along with a request, or to turn a newcomer away. Have it (again),
 * if there is one free; give it up. */
void passed_keep_spare(void);
void passed_give_spare(void);

/* Look at the next message of a client's without taking it. Return its length, or more than `room`, or -1 and errno. *fd: a descriptor that came
 * along, -1: none. *more: others did, too, or there was no room for it. */
ssize_t passed_look(int from, char *bytes, size_t room, int *fd, bool *more);

/* Take it: there must be a copy of what came along. */
void passed_take(int from);

/* Read one message from a client that brings no descriptor and forget it; return as recv() does, or PASSED_BRINGS: it brings some. */
#define PASSED_BRINGS (-2)
ssize_t passed_discard(int fd);

/* Whether it is a socket's. */
bool passed_is_socket(int fd);

/* Whether the client's end of ours is gone and left something unread. */
bool passed_was_reset(int fd);

/* Have a descriptor closed that came along from this user. */
void passed_close(uid_t user, int fd);

/* Close our end, with all that lies in it. */
void passed_end(uid_t user, int fd);

#endif
