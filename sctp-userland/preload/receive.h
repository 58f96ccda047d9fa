#ifndef RECEIVE_H
#define RECEIVE_H

#include <stdint.h>
#include <sys/socket.h>

/* recvmsg() on an SCTP socket. known: fd_known(fd). */
ssize_t sctp_receive(int fd, uint64_t known, struct msghdr *message, int flags);

/* Somebody was told the error that is pending, or it counts no more: take away what tells readers to ask for it, if it is the next thing to be
 * received. Left there it would only make the descriptor readable once more. */
void sctp_forget_error(int fd);

/* Wait until a connection may be asked for on a listening socket. Return 0, or -1 and errno. */
int sctp_wait_connection(int fd);

#endif
