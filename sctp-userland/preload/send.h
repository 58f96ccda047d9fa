#ifndef SEND_H
#define SEND_H

#include <stdint.h>
#include <sys/socket.h>

/* sendmsg() on an SCTP socket. known: fd_known(fd). */
ssize_t sctp_send(int fd, uint64_t known, const struct msghdr *message, int flags);

/* connect() and connectx() to packed addresses; *association: the new one, may be NULL. */
int sctp_connect_to(int fd, const void *addresses, size_t length, int *association);

#endif
