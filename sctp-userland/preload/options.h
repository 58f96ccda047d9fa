#ifndef PRELOAD_OPTIONS_H
#define PRELOAD_OPTIONS_H

#include <sys/socket.h>

/* setsockopt() and getsockopt() on an SCTP socket; setsockopt of CONNECTX returns the association, as Linux does. */
int sctp_set_option(int fd, int level, int option, const void *value, socklen_t length);
int sctp_get_option(int fd, int level, int option, void *value, socklen_t *length);

/* A call that answers with addresses into at most *length bytes. */
int sctp_name(int fd, int operation, struct sockaddr *name, socklen_t *length);

/* Give a descriptor that came with a reply the flags SOCK_NONBLOCK and SOCK_CLOEXEC in `flags`. */
int sctp_take_descriptor(int fd, int flags);

#endif
