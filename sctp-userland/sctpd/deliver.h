/* From usrsctp to the client. */
#ifndef DELIVER_H
#define DELIVER_H

#include "sockets.h"

/* Pass on what usrsctp has for this socket. Return false when more remains than one turn allows. */
bool socket_deliver(struct sctp_socket *s);

/* Know what ended its connection, also while that lies behind what wasn't read yet. */
void socket_note_error(struct sctp_socket *s);

/* The program receives what lies there already, and then the end: what comes later is thrown away. */
void socket_receives_no_more(struct sctp_socket *s);

/* Give a client the next message, if it is data: struct inbound, and its bytes. Return the length, 0: there is none. */
size_t socket_fetch(struct sctp_socket *s, char *to, bool stays);

#endif
