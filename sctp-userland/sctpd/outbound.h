/* Messages that come one way, down a socket's pair. */
#ifndef OUTBOUND_H
#define OUTBOUND_H

#include "sockets.h"

/* Whether messages for this association may come so from now on, as *way says. The descriptor is the client's end. */
bool outbound_may_come(struct sctp_socket *s, int client_fd, uint32_t association, struct way *way);

/* Have all senders ask again: what they name may be there no more. */
void outbound_change_way(struct sctp_socket *s);

/* The program has set another size of its buffer. The descriptor is the client's end. */
void outbound_note_room(struct sctp_socket *s, int client_fd);

/* Whether usrsctp may take more for this association. */
bool outbound_has_room(struct sctp_socket *s, uint32_t association);

/* Take messages and plugs as far as there is room. Return whether some may be left: blocked then tells that they wait for room. */
bool outbound_take(struct sctp_socket *s);

/* Whether its association takes nothing more. */
bool outbound_is_over(struct sctp_socket *s);

/* Take all messages that were sent before now. */
void outbound_take_all(struct sctp_socket *s);

/* The same on the sockets with this port (host order) that have an association with this peer, which is about to end. Nothing that is sent from now
 * on is taken for sent: its sender asks (OP_SENT). */
void outbound_end(uint16_t port, struct sockaddr *peer);

#endif
