/* Calls on an SCTP socket, as the C library's are on others. send.c, receive.c, options.c. */
#ifndef SCTP_H
#define SCTP_H

#include <stdint.h>
#include <sys/socket.h>

/* sendmsg() on an SCTP socket. known: fd_known(fd). */
ssize_t sctp_send(int fd, uint64_t known, const struct msghdr *message, int flags);

/* connect() and connectx() to packed addresses; *association: the new one, may be NULL. */
int sctp_connect_to(int fd, const void *addresses, size_t length, int *association);

/* recvmsg() on an SCTP socket. known: fd_known(fd). */
ssize_t sctp_receive(int fd, uint64_t known, struct msghdr *message, int flags);

/* Somebody was told the error that is pending, or it counts no more: take away what tells readers to ask for it, if it is the next thing to be
 * received. Left there it would only make the descriptor readable once more. */
void sctp_forget_error(int fd);

/* Wait until a connection may be asked for on a listening socket. Return 0, or -1 and errno. */
int sctp_wait_connection(int fd);

/* setsockopt() and getsockopt() on an SCTP socket; setsockopt of CONNECTX returns the association, as Linux does. */
int sctp_set_option(int fd, int level, int option, const void *value, socklen_t length);
int sctp_get_option(int fd, int level, int option, void *value, socklen_t *length);

/* A call that answers with addresses into at most *length bytes. */
int sctp_name(int fd, int operation, struct sockaddr *name, socklen_t *length);

/* Give a descriptor that came with a reply the flags SOCK_NONBLOCK and SOCK_CLOEXEC in `flags`. */
int sctp_take_descriptor(int fd, int flags);

#endif
