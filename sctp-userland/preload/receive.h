#ifndef RECEIVE_H
#define RECEIVE_H

#include <stdint.h>
#include <sys/socket.h>

/* recvmsg() on an SCTP socket. */
ssize_t sctp_receive(int fd, struct msghdr *message, int flags);

/* Wait for a connection on a listening socket; its token, or -1 and errno. */
int sctp_wait_token(int fd, uint64_t *token);

#endif
