#ifndef INIT_CHECK_H
#define INIT_CHECK_H

/* Whether the chunk at the start of a packet's `length` bytes of chunks is an INIT that is to be discarded, or an INIT ACK that
 * gives too many addresses. An INIT carries no tag, so that any stranger can send one; usrsctp 0.9.5 ends the association that
 * has its ports over most that are wrong (RFC 9260 section 3.3.2: discard), and over a parameter of length 0 it never ends itself. */
int init_is_wrong(const char *chunks, int length);

#endif
