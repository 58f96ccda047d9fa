#ifndef RECEIVE_H
#define RECEIVE_H

#include <stdint.h>
#include <sys/socket.h>

/* recvmsg() on an SCTP socket. */
ssize_t sctp_receive(int fd, struct msghdr *message, int flags);

/* Take the error that ended the connection, if it is the next thing to be received: as with a kernel whoever asks first is told, and nobody
 * after him. Return it, or 0. */
int sctp_take_error(int fd);

/* Wait until a connection may be asked for on a listening socket. Return 0, or -1 and errno. */
int sctp_wait_connection(int fd);

#endif
