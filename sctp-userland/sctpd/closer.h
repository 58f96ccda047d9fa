/* Closing what the loop must not close: a thread of its own does it. */
#ifndef CLOSER_H
#define CLOSER_H

#include <stdbool.h>
#include <sys/socket.h>

#define PASSED_MAX 253 /* descriptors that one message may bring: the kernel's SCM_MAX_FD */

/* Room for as many as a message can bring: what has no room the kernel would close, here and now. */
union passed_room {
	char bytes[CMSG_SPACE(PASSED_MAX * sizeof(int))];
	struct cmsghdr aligned;
};

/* Start the thread. Return 0 or -errno. */
int closer_start(void);

/* Have it close this descriptor, soon: what a client passed, or a connection in which such descriptors may lie unread. Closing may then take as long
 * as the client likes: it may be a TCP socket with SO_LINGER, or a file of a file system of his own. */
void close_elsewhere(int fd);

/* Whether more than a few wait for it. */
bool closer_is_behind(void);

/* Have all descriptors that came with a message closed elsewhere, but *kept, the first of them; NULL: that one, too. *kept is -1 if there is none.
 * Return whether there were others. */
bool close_passed(struct msghdr *message, int *kept);

#endif
