/* Connections that wait to be accepted. */
#ifndef ACCEPT_H
#define ACCEPT_H

#include "sockets.h"

void socket_accept_all(struct sctp_socket *s);
void socket_limit_waiting(struct sctp_socket *s);
void sockets_doubt_telling(void);
void socket_forget_first_waiting(struct sctp_socket *s);
void socket_drop_waiting(struct sctp_socket *s);

#endif
