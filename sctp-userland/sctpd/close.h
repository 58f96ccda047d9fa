/* Closing usrsctp's sockets as Linux closes its own. */
#ifndef CLOSE_H
#define CLOSE_H

#include "sockets.h"

/* Close one of usrsctp's sockets, with ABORT or by what lies unread in it. It is that of s, or came from there with one association. */
void close_stack_socket(const struct sctp_socket *s, struct socket *so, bool abort);

/* Go on with the end of what close_stack_socket() left open; return whether it is over. */
bool closing_has_ended(struct sctp_socket *s);

#endif
