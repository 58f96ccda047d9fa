/* Messages with a time to live (RFC 3758): one that can't be sent before its end is not sent. */
#ifndef EXPIRY_H
#define EXPIRY_H

#include "sockets.h"

/* Whether this message has to wait here, for room on its way or behind another one of the same association (0 on one-to-one sockets), or came too
 * late. If so it was copied, and is passed on, or told as failed, later. sent_ms: see clock_ms(). */
bool expiry_holds(struct sctp_socket *s, uint32_t association, const struct send_parameters *send, uint32_t sent_ms, const char *bytes,
		  size_t length);

/* Pass on what can be sent now, and tell what is too late. */
void expiry_look(struct sctp_socket *s);

/* Pass on everything, since nothing can be passed on later. */
void expiry_pass_all(struct sctp_socket *s);

/* Forget it. */
void expiry_drop(struct sctp_socket *s);

/* A message was not sent: tell who has asked for that. */
void expiry_tell_failed(struct sctp_socket *s, uint32_t association, const struct send_parameters *send, const char *bytes, size_t length);

#endif
