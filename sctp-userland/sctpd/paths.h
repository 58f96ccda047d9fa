/* The ways to a peer, one for each of its addresses. */
#ifndef PATHS_H
#define PATHS_H

#include "sockets.h"

/* An association has begun, or begun anew. */
void paths_begin(struct sctp_socket *s, sctp_assoc_t association);

/* See to associations that have no path left which usrsctp sends data on. */
void paths_look(struct sctp_socket *s);

#endif
