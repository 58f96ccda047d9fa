/* Which descriptors are SCTP sockets. */
#ifndef FDS_H
#define FDS_H

#include <stdbool.h>
#include <stdint.h>

#include "../protocol.h"

/* Whether fd is one. Right after dup, fork, exec and descriptor passing too: the kernel is asked, answers are kept per inode.
 * Leaves errno alone. */
bool fd_is_sctp(int fd);

/* Which socket a descriptor is, for what follows; asking costs a system call. */
uint64_t fd_known(int fd);

bool known_is_sctp(uint64_t known);

/* Whether it stands for a TCP connection, see shim.h. */
bool known_is_shim(uint64_t known);

/* The state of this socket by sctpd's word just now: STATE_ bits, 0: unknown. Leaves errno alone. */
uint32_t known_state(uint64_t known);

/* How messages go to this destination (0: they name none), as sctpd said of the last of them; number 0: not known. Sockets and destinations
 * share a table of STATES_MAX words. A way that a newer one has pushed out is asked for again. Leaves errno alone. */
struct way known_way(uint64_t known, uint64_t destination);
void known_keep_way(uint64_t known, uint64_t destination, struct way way);

bool fd_is_nonblocking(int fd);

#endif
