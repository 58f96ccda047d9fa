/* usrsctp's notifications in Linux's layout. */
#ifndef NOTIFICATIONS_H
#define NOTIFICATIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "sockets.h"

/* Linux's notification 0x8000 + i is usrsctp's notification_types[i]; 0: it has none. */
extern const uint16_t notification_types[LX_EVENT_COUNT];

/* Translate one notification of `length` bytes into `to` (room bytes). Return the length of the result; 0 when the program didn't
 * subscribe to it or Linux has no such notification. */
size_t notification_translate(const struct sctp_socket *s, const char *from, size_t length, char *to, size_t room);

/* SEND_FAILED, as the program subscribed to it, of a part of a message that was never sent. Room for that part and 256 bytes. Return its length, 0:
 * it wasn't asked for. */
size_t notification_send_failed(const struct sctp_socket *s, uint32_t association, const struct send_parameters *send, const char *bytes,
				size_t length, bool is_first, bool is_last, char *to);

/* The association that one of usrsctp's is about; 0: none. */
uint32_t notification_association(const char *from, size_t length);

#endif
