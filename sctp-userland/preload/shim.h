/* TCP sockets of programs that sctp-run --shim started: by its rules SCTP takes the place of TCP. */
#ifndef PRELOAD_SHIM_H
#define PRELOAD_SHIM_H

#include <sys/epoll.h>
#include <sys/socket.h>

/* The calls on sockets that are no SCTP sockets: TCP's, others, and those that stand for TCP. */
int shim_connect(int fd, const struct sockaddr *address, socklen_t length);
int shim_listen(int fd, int backlog);
int shim_accept(int fd, struct sockaddr *address, socklen_t *length, int flags);
int shim_name(int fd, int operation, struct sockaddr *name, socklen_t *length);
int shim_set_option(int fd, int level, int option, const void *value, socklen_t length);
int shim_get_option(int fd, int level, int option, void *value, socklen_t *length);

#endif
