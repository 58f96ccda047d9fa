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
#include <linux_sctp.h> /* made from the kernel's own by the Makefile */
#include "loop.h"

#define BOUND_MAX 16
#define LX_EVENT_COUNT ((int)sizeof(struct lx_event_subscribe)) /* byte i is for notification 0x8000 + i */

struct waiting { /* an accepted connection the client hasn't fetched yet */
	struct waiting *next;
	struct socket *so;
	struct sockaddr_in6 peer;
	socklen_t peer_length;
};

/* From socket() to the end of the last association. One-to-many sockets are open or listen while they have a client; what they begin is
 * connecting_association. The meaning of each state, and which may follow, is a table in sockets.c. */
enum socket_state {
	SOCKET_OPEN,
	SOCKET_LISTENS,
	SOCKET_CONNECTING,
	SOCKET_FAILED,	  /* a connect() did: another one needs a new usrsctp socket */
	SOCKET_CONNECTED,
	SOCKET_WRITE_SHUT, /* by the program: nothing more is sent */
	SOCKET_READ_SHUT, /* by the program: what comes is thrown away */
	SOCKET_ENDED,	  /* by the peer */
	SOCKET_FINISHED,  /* by both */
	SOCKET_BROKEN,	  /* by an ABORT, a timeout, want of memory */
	SOCKET_CLOSING,	  /* its client is gone, its associations are not: see lifecycle.c */
	SOCKET_GONE,
};

struct sctp_socket {
	struct watch watch; /* first: the descriptor, our end */
	struct sctp_socket *next, **previous, *next_in_stack, *next_cookie, *next_dirty;
	struct socket *so;
	uint32_t slot;   /* of its state, see states_take() */
	uint64_t cookie; /* SO_COOKIE of the client's end: how a passed descriptor is recognised */
	ino_t inode;     /* ... and its inode: before Linux 5.10 another network namespace gives out the same cookies */
	struct ucred owner;    /* the process that made or accepted it */
	int domain, type;
	enum socket_state state;
	bool dirty;        /* on the list of those usrsctp has something to say about */
	struct kept_option *kept;
	size_t kept_bytes;
	bool plugged;      /* a plug lies in the descriptor until there is room or the connection is made, or fails */
	bool blocked;      /* a send found no room; cleared when usrsctp may have some again */
	bool unasked;      /* it is looked at again though nothing has told that it could go on */
	bool end_told;     /* that nothing comes any more: the client was told, or will be behind all that lies in the descriptor */
	uint32_t connecting_association; /* of a one-to-many socket; 0: none */
	int error;         /* for whoever asks first: by SO_ERROR, by receiving, by sending */
	bool error_noted;  /* it is, or was, what ended the connection */
	int backlog;
	uint8_t events[LX_EVENT_COUNT]; /* as the program subscribed */
	bool wants_rcvinfo, wants_nxtinfo, v6only;
	bool near;         /* a peer is, or was, on this host */
	bool has_lifetime; /* the program has set one for all messages, of some association */
	struct sockaddr_in6 bound[BOUND_MAX]; /* addresses bound to; none: any */
	int bound_count;
	uint16_t port;     /* host order, 0: not bound */
	enum { BY_SOCKET, BY_ACCEPT, BY_PEELING } made; /* in the last two cases usrsctp wouldn't keep its port from others */
	uint16_t way;      /* its number, see struct way; 0: no message came one way yet */
	uint32_t full;     /* an association of a one-to-many socket that has no room for them; 0: none is known */
	bool calls_only;   /* it asked for errors that only a call can tell */
	bool sends_nothing; /* the program has shut down the pair itself, past the library: its end shows again and again */
	bool ends;         /* the peer's SHUTDOWN came, or seemed to: from then on usrsctp takes nothing more */
	int lost;          /* errno: a message that came one way was not sent */
	int send_room;     /* bytes: how much of them usrsctp takes */
	bool reuses;       /* ... but may share it (SO_REUSEADDR) */
	bool reuses_port;  /* SO_REUSEPORT, which is kept and does nothing: usrsctp has one endpoint for each port */
	struct shim *shim; /* it stands for a TCP connection, or listens for some, see shim.h; NULL: it doesn't */
	uint64_t due_ms; /* when the connect() of such a socket is over, whatever came; 0: it is */
	struct sockaddr_in6 peer; /* of the latest association of a one-to-one socket, also when that is over; no family: none yet */
	uint32_t path_wait_ms; /* an association may have no path left: between two heartbeats, see paths.c; 0: all have one */
	uint64_t path_asked_ms, path_next_ms, path_due_ms; /* when that was, when it may be looked again at the soonest, and when it is to be; 0: not */
	struct held *held; /* outward messages that wait, see expiry.c */
	size_t held_bytes;
	struct unsent *unsent, *last_unsent; /* inbound messages that wait, see inbound.c */
	size_t unsent_length;  /* bytes */
	struct unsent *returned; /* what clients took and gave back: it comes before what lies in the descriptor */
	bool rest_told;        /* ... of which an INBOUND_REST tells that lies first in the descriptor, where else nothing would */
	bool wants_memory;     /* ... for memory */
	bool last_was_data;    /* of what the descriptor took */
	bool waits_for_asking; /* the receive buffer is small: data stays with usrsctp, and fills its window, until a client asks for it */
	bool asking_told;      /* ... which clients were told, and none has done */
	bool left_unread;      /* the client is gone and has left something unread */
	int send_buffer, receive_buffer; /* as getsockopt tells */
	struct waiting *waiting;
	int waiting_count, waiting_told; /* told: announced to the client, and not asked for yet */
	bool telling_doubted; /* a client ended, which may have been told and never asked */
};

#define IS_ONE_TO_ONE(s) ((s)->type == SOCK_STREAM)

struct socket_state_means {
	const char *name;    /* for people */
	bool had_connection; /* so it can't get another */
	bool receives;	     /* for the program */
	bool discards;	     /* what comes is thrown away */
	bool hangs_up;	     /* the client is told the end, by its descriptor's */
	uint32_t told;	     /* STATE_ bits, of one-to-one sockets */
	uint32_t next;	     /* a bit for each state that may follow */
};
const struct socket_state_means *socket_means(const struct sctp_socket *s);

/* Change its state, and tell it. */
void socket_enter(struct sctp_socket *s, enum socket_state state);

static inline bool socket_is_connecting(const struct sctp_socket *s)
{
	return s->state == SOCKET_CONNECTING || s->connecting_association != 0;
}

/* Keep the usrsctp socket of `of` (and its type), which was that of s or came from there, until its associations are over. Return false: no
 * memory. */
bool socket_create_closing(const struct sctp_socket *of, const struct sctp_socket *s);

/* Among all sockets from now on, or no more. Before its end it leaves usrsctp, which then wakes it up no more. */
void sockets_add(struct sctp_socket *s);
void sockets_remove(struct sctp_socket *s);
void socket_leave_stack(struct sctp_socket *s);

/* The socket whose client end this descriptor is, NULL: none. */
struct sctp_socket *socket_of(int client_fd);

/* Tell its clients what they may know without asking, as it is now. */
void socket_tell_state(struct sctp_socket *s);

/* The states that clients may know without asking: a word for each socket, in memory that all of them can read. */

/* Return 0 or -errno. */
int states_start(void);

/* The descriptor of that memory. */
int states_memory(void);

/* A socket's slot; STATES_MAX: none is left. Tell its state (STATE_ bits). Its slot may be another's from now on; until then the last state
 * stays there, for who reads what the socket has left. */
uint32_t states_take(void);
void states_tell(uint32_t slot, uint32_t state);
void states_give_back(uint32_t slot);

/* Whether some are to be looked at. Take the list of them (next_dirty), which is empty then. */
bool sockets_pending(void);
struct sctp_socket *sockets_take_pending(void);

/* Look at this one too in the next run. */
void socket_look(struct sctp_socket *s);

/* Some wait for time to pass: for memory, or with messages that wait for room. Have them looked at, now and then. */
void sockets_wait_for_time(void);
void sockets_run_waiting(void);

/* The time until these are looked at next, in ms; -1: none waits. */
int sockets_waiting_next_ms(void);

/* usrsctp has something to say about this one. Called from deep inside usrsctp: only note it. */
void socket_wakeup(struct socket *so);

/* ... that one of its associations has lost a path. */
void socket_lost_path(struct socket *so);

/* An association may have no path left, or has none and something is sent: paths.c sees to it. */
void socket_doubt_paths(struct sctp_socket *s);

/* Let blocked senders try again: memory is free again, of which nothing else tells. */
void sockets_unblock_all(void);

/* The same without a reason, in case a wake-up is missing. A socket that then goes on is counted in loop_figures. */
void sockets_look_unasked(void);
void socket_went_on(struct sctp_socket *s);

/* How many there are. */
int sockets_count(void);
struct sctp_socket *sockets_first(void);

/* Put another usrsctp socket in the place of this one's. */
void socket_replace(struct sctp_socket *s, struct socket *fresh);

#endif
