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

#include "sockets.h"

#define SHIM_ADAPTATION 0x62797431 /* "byt1" */
#define SHIM_BYTES htonl(0x62797465) /* "byte" */
#define SHIM_END htonl(0x656e6421) /* "end!" */
#define SHIM_PART (32 * 1024) /* bytes of one message */

struct shim {
	struct watch tcp; /* first: the connection to the program, until it has accepted it */
	struct sctp_socket *s;
	struct shim *next, *listener; /* of those that are not accepted yet */
	struct sockaddr_in6 name; /* of that connection; of a listener: its own */
	size_t taken; /* bytes: lie in the pair, though they were passed on */
	bool peer_knows, refused, listens, receives_nothing;
	int kept; /* the client's end, while no client has it; -1: one has */
	uint32_t rto_min_ms;
	void (*accept_all)(struct sctp_socket *s); /* of a listener */
};
extern struct shim *shims_unaccepted;

/* A new socket's part; false: no memory. given: its association is there already. */
bool shim_begin(struct sctp_socket *s, int client_fd, bool given);

/* The settings of its usrsctp socket. */
void shim_prepare(struct sctp_socket *s);

/* Forget what only such a socket has. */
void shim_end(struct sctp_socket *s);

/* A first timeout four times as long; a peer with the same rule acknowledges in half of it. 0: as sctpd's options say. */
void shim_set_timeouts(struct sctp_socket *s, int32_t rto_min_ms);

/* Have the INIT repeated so often that a packet that is lost does not count as silence. Return the timeouts to be set when it was sent. */
struct sctp_rtoinfo shim_hurry(struct sctp_socket *s, uint32_t wait_ms);

/* Stop keeping the client's end: then the socket ends, by ABORT if wanted. It waits for accept() no more. */
void shim_let_go(struct shim *shim, bool abort);
void shim_leave_unaccepted(struct shim *shim);

/* The outcome of the last attempt at this address and port, SHIM_VERDICT_MS ago at most. */
enum shim_verdict shim_verdict_of(const struct sockaddr_in6 *peer, uint64_t *age_ms);

bool shim_same_end(const struct sockaddr_in6 *first, const struct sockaddr_in6 *second);

/* connect() ended; the client gave up, or is gone; a notification of usrsctp's came. */
void shim_connect_ended(struct sctp_socket *s, int error);
void shim_hung_up(struct sctp_socket *s);
void shim_learn(struct sctp_socket *s, const char *notification, size_t length);

/* Connect to the program for each association that came. */
void shim_accept_all(struct sctp_socket *s);

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

/* End what tries a destination that does not answer in time; that refuses all SCTP, from this local port (host order). */
void shim_look(struct sctp_socket *s);
void shim_refused_at(const struct sockaddr_in6 *peer, uint16_t port);

#endif
