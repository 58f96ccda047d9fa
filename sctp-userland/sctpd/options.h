/* Socket options: Linux's numbers and layouts to usrsctp's and back. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include "sockets.h"

/* The settings that every socket needs from usrsctp, whatever the program asks for. Also after the program's wishes changed. */
void options_prepare(struct sctp_socket *s);

/* Both return 0 or an errno. get: *length is the room (at most OPTION_MAX), then the length of the result. */
int options_set(struct sctp_socket *s, int level, int option, const char *value, size_t length);
int options_get(struct sctp_socket *s, int level, int option, char *value, size_t *length);

#endif
