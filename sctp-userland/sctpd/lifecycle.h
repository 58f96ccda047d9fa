/* A client's socket from its making to its end, and what it has to do in between. */
#ifndef LIFECYCLE_H
#define LIFECYCLE_H

#include "sockets.h"

/* Make a socket for a client; so NULL: a new one. The client's descriptor goes to *client_fd. Return NULL and errno; then so stays. */
struct sctp_socket *socket_create(int domain, int type, struct socket *so, const struct ucred *owner, int *client_fd);

/* Make it not writable if it is unconnected; the descriptor is the client's end. */
void socket_plug(struct sctp_socket *s, int client_fd);

/* Notice now which sockets with this port (0: any), but this one, have lost their last holder: a close that came before a request counts before it. */
void sockets_reap(uint16_t port, const struct sctp_socket *but);

/* Do what became possible on all sockets usrsctp has noted: deliver, accept, finish connects, free. */
void sockets_run(void);

/* The same, and what this brings to sockets of this host, at once. waits: see packets_take_own(). */
void sockets_turn(bool waits);

/* Close one of usrsctp's sockets, with ABORT or by what lies unread in it. It is that of s, or came from there with one association. */
void close_stack_socket(const struct sctp_socket *s, struct socket *so, bool abort);

/* Connections that wait to be accepted: take as many as the backlog lets; forget the first; a client ended that may have been told of some. */
void socket_limit_waiting(struct sctp_socket *s);
void socket_forget_first_waiting(struct sctp_socket *s);
void sockets_doubt_telling(void);

/* Prepare for another connect() after one that failed; return 0 or an errno. keep: remember an option that was set. */
int again_prepare(struct sctp_socket *s);
void again_keep(struct sctp_socket *s, int level, int option, const char *value, size_t length);

/* ABORT everything (the daemon ends). */
void sockets_end_all(void);

#endif
