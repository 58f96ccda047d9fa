#ifndef RECEIVE_H
#define RECEIVE_H

#include <stdint.h>
#include <sys/socket.h>

/* recvmsg() on an SCTP socket. */
ssize_t sctp_receive(int fd, struct msghdr *message, int flags);

/* Wait until a connection may be asked for on a listening socket. Return 0, or -1 and errno. */
int sctp_wait_connection(int fd);

#endif
