#ifndef PASSED_H
#define PASSED_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

#define DESCRIPTORS_MAX 253 /* the most the kernel lets one message bring: it closes itself what finds no room */

/* Take the first descriptor that came along from this user, -1: none; have any others closed. */
int passed_take(uid_t user, struct msghdr *message);

/* Read one message from a client and forget it; return as recv() does. */
ssize_t passed_discard(uid_t user, int fd);

/* Whether the client's end of ours is gone and left something unread. */
bool passed_was_reset(uid_t user, int fd);

/* Close our end, with all that lies in it. */
void passed_end(uid_t user, int fd);

#endif
