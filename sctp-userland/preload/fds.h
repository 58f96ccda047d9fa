/* Which descriptors are SCTP sockets. */
#ifndef FDS_H
#define FDS_H

#include <stdbool.h>
#include <stdint.h>

/* Whether fd is one. Right after dup, fork, exec and descriptor passing too: the kernel is asked, answers are kept per inode.
 * Leaves errno alone. */
bool fd_is_sctp(int fd);

/* The inode of one; 0: it was closed meanwhile. */
unsigned long fd_inode(int fd);

/* What sctpd says of one just now: STATE_ bits, 0: unknown. Leaves errno alone. */
uint32_t fd_state(int fd);

bool fd_is_nonblocking(int fd);

#endif
