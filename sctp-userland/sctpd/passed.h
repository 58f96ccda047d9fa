#ifndef PASSED_H
#define PASSED_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

#define DESCRIPTORS_MAX 253 /* the most the kernel lets one message bring: it closes itself what finds no room */

/* Close a client's descriptor without waiting for what lies behind it. */
void passed_close(int fd);

/* Take the first descriptor that came along, -1: none; close any others. */
int passed_take(struct msghdr *message);

/* Read one message from a client and forget it; return as recv() does. */
ssize_t passed_discard(int fd);

/* Read all there is, before our end is closed. Return whether the client left something unread. */
bool passed_drain(int fd);

#endif
