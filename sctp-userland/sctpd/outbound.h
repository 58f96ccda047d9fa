/* Messages that come one way, down a one-to-one socket's pair. */
#ifndef OUTBOUND_H
#define OUTBOUND_H

#include "sockets.h"

/* Let messages come so from now on, if the association is there. The descriptor is the client's end. */
void outbound_begin(struct sctp_socket *s, int client_fd);

/* The program has set another size of its buffer. */
void outbound_note_room(struct sctp_socket *s);

/* Whether usrsctp may take more of this socket's. */
bool outbound_has_room(struct sctp_socket *s);

/* Take messages and plugs as far as there is room. Return whether some may be left: blocked then tells that they wait for room. */
bool outbound_take(struct sctp_socket *s);

/* Whether its association takes nothing more. */
bool outbound_is_over(struct sctp_socket *s);

/* Take all messages that were sent before now. */
void outbound_take_all(struct sctp_socket *s);

/* The same on all sockets with this port (host order), whose associations may be about to end. Nothing that is sent from now on is taken for sent:
 * its sender asks (OP_SENT). */
void outbound_end(uint16_t port);

#endif
