/* TCP over SCTP: sockets that stand for TCP connections of programs that know nothing of SCTP.
 *
 * Such a socket's pair carries bytes without headers. The program reads and writes it as it would a TCP socket, past the library, which only sets
 * it up. The kernel does the rest: poll, sendfile, dup, fork.
 *
 *   bytes       one message each, ordered, on stream 0, SHIM_BYTES
 *   half-close  SHIM_END behind the bytes, if the peer's adaptation indication (RFC 5061) says that it knows that; else SHUTDOWN
 *   close       SHUTDOWN; ABORT if something was never read
 *   loss        ECONNRESET. The kernel tells that, instead of an orderly end, to who holds the other end of a pair that is closed with bytes unread:
 *               so the last byte that was taken always stays there, and at the beginning the plug or a byte of sctpd's own
 *   listener    the program's own TCP socket. For each association sctpd connects to it by TCP over loopback; the library's accept() then has that
 *               connection changed for the pair, and knows the peer's address. Nothing is passed before: who accepts without the library gets nothing
 */
#ifndef SHIM_H
#define SHIM_H

#include "calls.h"

#define SHIM_ADAPTATION 0x62797431 /* "byt1" */
#define SHIM_BYTES htonl(0x62797465) /* "byte" */
#define SHIM_END htonl(0x656e6421) /* "end!" */
#define SHIM_PART (32 * 1024) /* bytes of one message */

/* A new socket's part; false: no memory. given: its association is there already. */
bool shim_begin(struct sctp_socket *s, int client_fd, bool given);

/* The settings of its usrsctp socket. */
void shim_prepare(struct sctp_socket *s);

/* Forget what only such a socket has. */
void shim_end(struct sctp_socket *s);

/* The calls about them; others than shim_may() tells are refused. Each returns 0 or an errno. */
bool shim_may(int operation);
int shim_connect(struct call *call, struct sctp_socket *s);
int shim_listen(struct call *call);
int shim_accept(struct call *call);
int shim_verdict(struct call *call);

/* connect() ended; the client gave up, or is gone; a notification of usrsctp's came. */
void shim_connect_ended(struct sctp_socket *s, int error);
void shim_hung_up(struct sctp_socket *s);
void shim_learn(struct sctp_socket *s, const char *notification, size_t length);

/* Connect to the program for each association that came. */
void shim_accept_all(struct sctp_socket *s);

/* See which TCP listeners are gone: every two seconds. */
void shim_look_for_listeners(void);

/* Bytes that the program has sent, at most SHIM_PART; 0: none are there; -1: nor will be. */
ssize_t shim_take(struct sctp_socket *s, char *bytes);

/* The peer has ended its side; the program has; it has sent something that goes nowhere. */
void shim_end_receiving(struct sctp_socket *s);
void shim_end_sending(struct sctp_socket *s);
void shim_refuse(struct sctp_socket *s);

/* The payload protocol that its bytes are marked with: none for a peer that knows nothing of this. */
uint32_t shim_ppid(const struct sctp_socket *s);

bool shim_is_end(const struct sctp_socket *s, const struct inbound *header);

/* Whether it ends by ECONNRESET; whether it is over, so or by both sides in order, and everything was passed on that came before. */
bool shim_resets(const struct sctp_socket *s);
bool shim_is_over(struct sctp_socket *s);

bool shim_has_plug(const struct sctp_socket *s);

/* Whether it tries a destination without a client and waits for that to end. Its time being over ends it. */
bool shim_waits(const struct sctp_socket *s);

#endif
