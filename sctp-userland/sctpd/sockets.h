/* The SCTP sockets of all clients: each a usrsctp socket and our end of the client's descriptor. */
#ifndef SOCKETS_H
#define SOCKETS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/types.h>
#include <usrsctp.h>

#include "../protocol.h"
#include "linux_sctp.h"
#include "loop.h"

#define BOUND_MAX 16

struct waiting { /* an accepted connection the client hasn't fetched yet */
	struct waiting *next;
	struct socket *so;
	struct sockaddr_in6 peer;
	socklen_t peer_length;
};

struct sctp_socket {
	struct watch watch; /* first: the descriptor, our end */
	struct sctp_socket *next, **previous, *next_in_stack, *next_cookie, *next_dirty;
	struct socket *so;
	uint32_t number; /* rises with each new one */
	uint32_t place;  /* of its state, see states.h */
	uint64_t cookie; /* SO_COOKIE of the client's end: how a passed descriptor is recognised */
	ino_t inode;     /* ... and its inode: before Linux 5.10 another network namespace gives out the same cookies */
	struct ucred owner;    /* the process that made or accepted it */
	int domain, type;
	bool listening, gone;
	bool closing;      /* its client is gone, its associations are not: see close.c */
	bool dirty;        /* on the list of those usrsctp has something to say about */
	bool connecting;   /* a connect() is under way */
	bool was_connected;
	bool failed_before; /* a connect() failed: another one needs a new usrsctp socket */
	struct kept_option *kept;
	size_t kept_bytes;
	bool served; /* a call on it is being answered: it must stay until then */
	bool plugged;      /* a plug lies in the descriptor until there is room or the connection is made, or fails */
	bool blocked;      /* a send found no room; cleared when usrsctp may have some again */
	bool shut_down;    /* the program shut down its direction */
	bool received_all; /* nothing comes any more */
	bool discards;     /* ... for the program reads no more; what comes is thrown away */
	bool end_told;     /* ... which the client was told */
	bool silent_end;   /* ... without hanging up: the program itself has shut down, and the peer ended, too */
	int end_error;     /* ... as this error, 0: end of file */
	uint32_t connecting_association;
	int error;         /* for whoever asks first: by SO_ERROR, by receiving, by sending */
	bool error_noted;  /* it is, or was, what ended the connection */
	int backlog;
	uint8_t events[LX_EVENT_COUNT]; /* as the program subscribed */
	bool wants_rcvinfo, wants_nxtinfo, v6only;
	uint16_t out_streams, in_streams; /* the most an association of it may have had; 0 inward: the usual number */
	uint32_t default_timetolive;
	struct sockaddr_in6 bound[BOUND_MAX]; /* addresses bound to; none: any */
	int bound_count;
	bool bound_any;
	uint16_t port;     /* host order, 0: not bound */
	bool accepted;     /* or peeled off: usrsctp wouldn't keep its port from others */
	bool peeled_off;
	uint16_t streams;  /* that messages which come one way may name; 0: none come so */
	bool calls_only;   /* it asked for errors that only a call can tell */
	bool ends;         /* the peer's SHUTDOWN came, or seemed to: from then on usrsctp takes nothing more */
	int lost;          /* errno: a message that came one way was not sent */
	int send_room;     /* bytes: how much of them usrsctp takes */
	bool reuses;       /* ... but may share it (SO_REUSEADDR) */
	struct sockaddr_in6 peer; /* of the latest association of a one-to-one socket, also when that is over; no family: none yet */
	struct held *held; /* outward messages that wait, see expiry.c */
	size_t held_bytes;
	struct unsent *unsent, *last_unsent; /* inbound messages that wait, see inbound.c */
	size_t unsent_length;  /* bytes */
	bool wants_memory;     /* ... for memory */
	bool last_was_data;    /* of what the descriptor took */
	bool left_unread;      /* the client is gone and has left something unread */
	int send_buffer, receive_buffer; /* as getsockopt tells */
	struct waiting *waiting;
	int waiting_count, waiting_told; /* told: announced to the client, and not asked for yet */
	bool telling_doubted; /* a client ended, which may have been told and never asked */
};

#define IS_ONE_TO_ONE(s) ((s)->type == SOCK_STREAM)

/* Neither connected nor told that this failed: such a socket isn't writable. */
#define IS_UNCONNECTED(s) (IS_ONE_TO_ONE(s) && !(s)->was_connected && (s)->error == 0)

/* Make a socket for a client; so NULL: a new one. The client's descriptor goes to *client_fd. Return NULL and errno; then so stays. */
struct sctp_socket *socket_create(int domain, int type, struct socket *so, const struct ucred *owner, int *client_fd);

/* Keep the usrsctp socket of `of` (and its type), which was that of s or came from there, until its associations are over. Return false: no
 * memory. */
bool socket_create_closing(const struct sctp_socket *of, const struct sctp_socket *s);

/* Whether another socket has an association from one of this one's addresses and its port with this peer: another one would take its place. */
bool socket_would_take_over(const struct sctp_socket *s, const struct sockaddr *peer);

/* Bind a socket that has no port to one that no other has, as usrsctp would to one that its accepted sockets may have. Return 0 or an errno. */
int socket_choose_port(struct sctp_socket *s, struct sockaddr_in6 *address);

/* The socket whose client end this descriptor is, NULL: none. */
struct sctp_socket *socket_of(int client_fd);

/* Tell its clients what they may know without asking, as it is now. */
void socket_tell_state(struct sctp_socket *s);

/* Make it not writable if it is unconnected; the descriptor is the client's end. */
void socket_plug(struct sctp_socket *s, int client_fd);

/* Notice now which sockets with this port (0: any) have lost their last holder: a close that came before a request counts before it. */
void sockets_reap(uint16_t port);

/* Do what became possible on all sockets usrsctp has noted: deliver, accept, finish connects, free. */
void sockets_run(void);

/* Whether a run is due. */
bool sockets_pending(void);

/* Look at this one too in the next run. */
void socket_look(struct sctp_socket *s);

/* bound.c
 * Whether a packet from this local port (host order), for which usrsctp chose a source address, may carry the wanted one instead. A
 * connecting socket that was never bound gets its port in the middle of connect(): its first packet comes from a port not noted here. */
bool sockets_may_use(uint16_t port, const struct sockaddr *chosen, const struct sockaddr *wanted, bool connecting);

/* Whether packets for this local address and port may be this socket's. */
bool socket_is_at(const struct sctp_socket *s, const struct sockaddr *local);

/* Whether who binds this address and port would share them with this socket. */
bool socket_conflicts(const struct sctp_socket *s, const struct sockaddr *address);

/* IPv4 as the program of an IPv6 socket sees it (::ffff:a.b.c.d), and back; other addresses stay. Room for a sockaddr_in6; return the
 * length. */
socklen_t address_map(struct sockaddr_in6 *address, int domain);
socklen_t address_unmap(struct sockaddr_in6 *address);

/* Whether this endpoint of usrsctp's is bound to all addresses of the host. */
bool sockets_bind_all(const void *endpoint);

/* Remember addresses for the above and for getsockname(). */
bool address_is_any(const struct sockaddr *address);
void socket_note_bound(struct sctp_socket *s, const struct sockaddr *address);
void socket_forget_bound(struct sctp_socket *s, const struct sockaddr *address);
bool socket_is_bound_to(const struct sctp_socket *s, const struct sockaddr *address);

/* Remember the peer, for getpeername(). */
void socket_note_peer(struct sctp_socket *s);

/* Let blocked senders try again: some ways of getting room make no wake-up. */
void sockets_unblock_all(void);

/* How many there are. */
int sockets_count(void);
struct sctp_socket *sockets_first(void);

/* ABORT everything (the daemon ends). */
void sockets_end_all(void);

/* Put another usrsctp socket in the place of this one's. */
void socket_replace(struct sctp_socket *s, struct socket *fresh);

/* again.c: prepare for another connect() after one that failed; return 0 or an errno. keep: remember an option that was set. */
int again_prepare(struct sctp_socket *s);
void again_keep(struct sctp_socket *s, int level, int option, const char *value, size_t length);
void again_forget(struct sctp_socket *s);

/* deliver.c: pass on what usrsctp has for this socket. Return false when more remains than one turn allows. */
bool socket_deliver(struct sctp_socket *s);

/* Know what ended its connection, also while that lies behind what wasn't read yet. */
void socket_note_error(struct sctp_socket *s);

/* The program receives what lies there already, and then the end: what comes later is thrown away. */
void socket_receives_no_more(struct sctp_socket *s);

/* accept.c */
void socket_accept_all(struct sctp_socket *s);
void socket_limit_waiting(struct sctp_socket *s);
void sockets_doubt_telling(void);
void socket_forget_first_waiting(struct sctp_socket *s);
void socket_drop_waiting(struct sctp_socket *s);

/* inbound.c: whether the client has read all that went in. */
bool inbound_all_read(const struct sctp_socket *s);

/* Give our end of a descriptor room for every message; return false and errno when it can't be had. */
bool inbound_prepare(int fd);

/* Try again what found no memory, now and then. Return the ms until the next time, -1: none. */
int inbound_run(uint64_t now_ms);

/* Push an inbound message, or keep it until it can be; return whether another one may come. */
bool socket_push(struct sctp_socket *s, const struct inbound *header, const char *bytes, size_t length);

/* Push those that wait, as far as possible; return as above. */
bool socket_push_unsent(struct sctp_socket *s);

/* Give a socket that was peeled off what its association has waiting, read by nobody. The descriptors are the clients' ends. */
void socket_move_inbound(struct sctp_socket *from, int from_fd, struct sctp_socket *to, int to_fd, uint32_t association);

/* Forget those that wait; return whether data was among them. */
bool socket_drop_unsent(struct sctp_socket *s);

/* close.c: close one of usrsctp's sockets, with ABORT or by what lies unread in it. It is that of s, or came from there with one association. */
void close_stack_socket(const struct sctp_socket *s, struct socket *so, bool abort);

/* Go on with the end of what close_stack_socket() left open; return whether it is over. */
bool closing_has_ended(struct sctp_socket *s);

/* Host order. */
static inline uint16_t address_port(const struct sockaddr *address)
{
	uint16_t port; /* at the same place in both families */

	memcpy(&port, (const char *)address + 2, sizeof(port));
	return ntohs(port);
}

static inline socklen_t address_length(const struct sockaddr *address)
{
	if (address->sa_family == AF_INET)
		return sizeof(struct sockaddr_in);
	return address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : 0;
}

#endif
