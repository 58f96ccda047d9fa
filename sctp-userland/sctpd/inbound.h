/* The messages to the client through our end of its descriptor. */
#ifndef INBOUND_H
#define INBOUND_H

#include "sockets.h"

/* Whether the client has read all that went in. */
bool inbound_all_read(const struct sctp_socket *s);

/* Give our end of a descriptor room for every message; return false and errno when it can't be had. */
bool inbound_prepare(int fd);

/* Push an inbound message, or keep it until it can be; return whether another one may come. */
bool socket_push(struct sctp_socket *s, const struct inbound *header, const char *bytes, size_t length);

/* Push those that wait, as far as possible; return as above. */
bool socket_push_unsent(struct sctp_socket *s);

/* Give a socket that was peeled off what its association has waiting, read by nobody. The descriptor is the client's end. */
void socket_move_inbound(struct sctp_socket *from, int from_fd, struct sctp_socket *to, uint32_t association);

/* Put what a client took and can't use, struct inbound and bytes, before all else. Return 0 or an errno. */
int socket_take_back(struct sctp_socket *s, const char *bytes, size_t length);

/* The first of those that were given back; return its length, 0: there is none. The descriptor is the client's end. */
size_t socket_give_returned(struct sctp_socket *s, int client_fd, char *to, bool stays);

/* Forget those that wait; return whether data was among them. */
bool socket_drop_unsent(struct sctp_socket *s);

#endif
