/* The values that programs give, and get, in usrsctp's layouts and in Linux's. Options are in options.c, notifications in notifications.c. */
#ifndef TRANSLATE_H
#define TRANSLATE_H

#include "sockets.h"
#include "usrsctp_internal.h"

/* The parameters that a message for this association (0 on a one-to-one socket, or none yet) is sent with, if the program has set a
 * lifetime for all. Without, usrsctp applies the other defaults by itself. */
struct send_parameters translate_defaults(const struct sctp_socket *s, uint32_t association, struct send_parameters send);

/* Give usrsctp a message, to this address if there is one. Return as sendmsg() does. */
ssize_t translate_send(struct sctp_socket *s, const struct send_parameters *send, const struct sockaddr_in6 *to, const char *bytes, size_t length);

struct lx_paddrinfo translate_path(const struct sctp_paddrinfo *from);

/* Bytes that an association (0 on a one-to-one socket) has queued, receiving: that can't be delivered yet; zeros: there is none. */
struct buffer_use translate_buffer_use(const struct sctp_socket *s, uint32_t association);

/* SCTP_STATUS; association: 0 on a one-to-one socket. Return 0 or EINVAL. */
int translate_status(const struct sctp_socket *s, uint32_t association, struct lx_status *status);

#endif
