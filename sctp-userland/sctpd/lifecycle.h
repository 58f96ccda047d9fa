/* A client's socket from its making to its end, and what it has to do in between. */
#ifndef LIFECYCLE_H
#define LIFECYCLE_H

#include "sockets.h"

/* Make a socket for a client; so NULL: a new one. The client's descriptor goes to *client_fd. Return NULL and errno; then so stays. */
struct sctp_socket *socket_create(int domain, int type, struct socket *so, const struct ucred *owner, int *client_fd);

/* Make it not writable if it is unconnected; the descriptor is the client's end. */
void socket_plug(struct sctp_socket *s, int client_fd);

/* Notice now which sockets with this port (0: any) have lost their last holder: a close that came before a request counts before it. */
void sockets_reap(uint16_t port);

/* Do what became possible on all sockets usrsctp has noted: deliver, accept, finish connects, free. */
void sockets_run(void);

/* The same, and what this brings to sockets of this host, at once. waits: see packets_take_own(). */
void sockets_turn(bool waits);

/* ABORT everything (the daemon ends). */
void sockets_end_all(void);

#endif
