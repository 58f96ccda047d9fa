/* What the kernel tells about addresses, and that routes have changed. */
#ifndef NETLINK_H
#define NETLINK_H

/* Read which addresses there are, and follow changes. Return 0 or -errno. */
int netlink_watch(void);

/* Read what has changed just now. */
void netlink_catch_up(void);

#endif
