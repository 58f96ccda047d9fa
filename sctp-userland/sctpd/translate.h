/* The SCTP-level options whose layouts or numbers differ between Linux and usrsctp. */
#ifndef TRANSLATE_H
#define TRANSLATE_H

#include "sockets.h"

/* Return 0 or an errno. */
int translate_set(struct sctp_socket *s, int option, const char *value, size_t length);
int translate_get(struct sctp_socket *s, int option, char *value, size_t *length);

/* The association a one-to-one socket has, whatever identifier the program gave; else that identifier. */
uint32_t translate_association(const struct sctp_socket *s, uint32_t association);

/* What a program says of a message it sends. */
void translate_send(const struct sctp_socket *s, const struct send_parameters *send, struct sctp_sendv_spa *to);

/* usrsctp's number of an option with the same layout on both sides, -1: it has none. */
int translate_same(int linux_option);

/* What Linux says where usrsctp says this: of an association that there isn't. */
int translate_error(int error);

/* Whether an address is a wildcard or none at all. */
bool translate_is_any(struct sockaddr_storage address);

/* SCTP_STATUS in Linux's layout. Return 0 or an errno. */
int translate_status(struct sctp_socket *s, uint32_t association, struct lx_status *status);

#endif
