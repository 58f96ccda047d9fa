/* Another connect() on a one-to-one socket whose first one failed. */
#ifndef AGAIN_H
#define AGAIN_H

#include "sockets.h"

/* Prepare for another connect() after one that failed; return 0 or an errno. keep: remember an option that was set. */
int again_prepare(struct sctp_socket *s);
void again_keep(struct sctp_socket *s, int level, int option, const char *value, size_t length);
void again_forget(struct sctp_socket *s);

#endif
