/* The protocol between the preload library and sctpd.
 *
 * Two kinds of AF_UNIX SOCK_SEQPACKET connections, both inside one network namespace (abstract names are per namespace):
 *   control  one per thread of a client: struct request (+ address + data) out, struct reply (+ address + data) in.
 *            A request about a socket carries that socket's descriptor (SCM_RIGHTS): holding it is the right to use it.
 *            That costs nothing that can be measured. On the socket's own pair a request would wait behind plugs, until there is room.
 *   socket   what the program holds as its SCTP descriptor; sctpd holds the other end. Inward: struct inbound + bytes.
 *            Outward: struct outbound + address + bytes of messages, which nobody answers (they wait there while there is no room; what goes
 *            wrong is told inward, and the socket's state then says that the next send is a call), and "plugs": bytes that keep the descriptor
 *            from being writable until sctpd takes them out.
 *            The peer's end of file is sctpd's shutdown of the inward direction; both directions ended: sctpd is gone.
 *            When the last holder closes it, sctpd sees end-of-file.
 */
#ifndef SCTP_USERLAND_PROTOCOL_H
#define SCTP_USERLAND_PROTOCOL_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define PROTOCOL_VERSION 1
#define CONTROL_NAME "sctp-userland"       /* abstract name sctpd listens on (a zero byte comes before it) */
/* Abstract name of sctpd's end of each socket: the slot of its state, and a number nobody can foresee, both hexadecimal. */
#define SOCKET_NAME_PREFIX "sctp-userland/"
#define SOCKET_NAME_FORMAT SOCKET_NAME_PREFIX "%x/%llx"
/* ... and of each that stands for a TCP connection: bytes without headers, SOCK_STREAM, which programs read and write past the library. */
#define SHIM_NAME_PREFIX "sctp-shim/"
#define SHIM_NAME_FORMAT SHIM_NAME_PREFIX "%x/%llx"

/* Root makes this folder: an sctpd of its owner is believed, besides root's and one's own. An sctpd whose abstract name a stranger holds listens here,
 * under the number of its network namespace. Only root and the owner can take that name. */
#define SERVICE_FOLDER "/run/sctp-userland"
#define SERVICE_NAME_PREFIX SERVICE_FOLDER "/net-"
#define NOBODY 65534 /* as all are shown that this namespace of users doesn't know */

#define MESSAGE_MAX (256 * 1024)  /* bytes: the largest user message, usrsctp's send buffer */
#define ADDRESSES_MAX 2048        /* bytes of packed socket addresses in one request or reply */
#define OPTION_MAX 4096           /* bytes of one socket option */
#define PLUG_SIZE 2048            /* bytes: more than a quarter of the client end's send buffer */
#define CLIENT_SEND_BUFFER 2304   /* bytes asked for by SO_SNDBUF on the client's end; the kernel doubles it */

enum operation {
	OP_SOCKET = 1, /* arguments: domain, type (SHIM_TYPE: for bytes) -> descriptor */
	OP_BIND,       /* address */
	OP_BINDX,      /* argument 0: 1 add, 2 remove; packed addresses */
	OP_LISTEN,     /* argument 0: backlog */
	OP_ACCEPT,     /* after an INBOUND_ACCEPT, which comes again if this fails -> descriptor, peer address */
	OP_CONNECT,    /* packed addresses; EINPROGRESS, then the descriptor becomes writable; result: association */
	OP_SEND,       /* struct send_parameters as argument block, address, data -> struct way, if more for the same may go one way; result of
			* EAGAIN: the association that has no room, which argument 0 says of the next attempt of a call that waited for it: ESRCH
			* if it is over */
	OP_SENT,       /* whether all that went one way was sent, on a socket that takes no more (STATE_TAKES_NO_MORE) */
	OP_SHUTDOWN,   /* argument 0: SHUT_* */
	OP_SETSOCKOPT, /* arguments: level, option; data */
	OP_GETSOCKOPT, /* arguments: level, option, room, whether an error stays that is told; data -> data */
	OP_GETSOCKNAME,
	OP_GETPEERNAME,
	OP_PEELOFF, /* argument 0: association -> descriptor */
	OP_STATUS,  /* argument 0: JSON or text -> descriptor of a file without a name, its position at the end */
	OP_STATES,  /* -> descriptor of the states' memory */
	OP_TURN,    /* answered when all that was sent before has gone as far as it goes on this host */
	OP_GIVE_BACK, /* data: struct inbound and bytes that a reader took and had no room for: they come again, before all else */
	OP_FETCH,     /* a message that lies with sctpd (INBOUND_ASK, STATE_RETURNED); arguments: it stays there, an INBOUND_ASK was taken that is no
		       * INBOUND_REST -> data: as in OP_GIVE_BACK */
	OP_SHIM_CONNECT, /* arguments: rto_min_ms, wait_ms, whether to try without the client; packed addresses; as OP_CONNECT. TCP it is: EPROTONOSUPPORT,
			  * EAGAIN; later the end of file */
	OP_SHIM_LISTEN, /* the descriptor is a TCP listener; arguments: backlog, rto_min_ms; packed addresses besides its own */
	OP_SHIM_ACCEPT, /* the descriptor is an accepted TCP connection -> descriptor, peer address; ENOENT: it is sctpd's of no association */
	OP_SHIM_VERDICT, /* one address -> result: enum shim_verdict; data: its age in ms, uint32_t */
	OP_COUNT,
};

#define SHIM_TYPE (SOCK_STREAM | 0x100)
#define SHIM_WAIT_MAX_MS 10000
#define SHIM_GRACE_MS 3000 /* beyond wait_ms for a peer that has answered, whose next packet was lost */
#define SHIM_RTO_MAX_MS 60000
#define SHIM_VERDICT_MS 60000 /* that destinations are remembered */
enum shim_verdict { SHIM_UNKNOWN, SHIM_SCTP, SHIM_REFUSED, SHIM_SILENT };

/* The state of each socket, one word for each: memory that sctpd writes and all clients read. No word: nothing is known. */
#define STATES_MAX 65536
#define STATE_KNOWN 1
#define STATE_LISTENS 2	 /* one-to-one: it receives nothing */
#define STATE_RECEIVES 4 /* something may still come, or the end */
#define STATE_WANTS_SNDRCV 8 /* ancillary data it has asked for */
#define STATE_WANTS_RCVINFO 16
#define STATE_WANTS_NXTINFO 32
#define STATE_TAKES_NO_MORE 64 /* what was sent one way just now may have come too late: OP_SENT */
#define STATE_OVER 128	 /* where nothing lies to be read there is no connection any more: ENOTCONN, not the end of file */
#define STATE_RETURNED 256 /* OP_FETCH comes before what lies in the descriptor: a reader has given something back */
#define STATE_NEAR 512	   /* it has, or had, a peer on this host: OP_TURN may bring what was sent just now */
#define STATE_CALLS_ONLY 1024 /* nothing goes one way just now */
#define STATE_WAY_SHIFT 16 /* from here on: number of the way that messages may go, down the pair */

struct send_parameters {
	uint16_t stream;
	uint16_t flags; /* Linux sinfo_flags */
	uint32_t ppid;  /* as given: network order by convention */
	uint32_t context;
	uint32_t association;
	uint32_t pr_value;
	uint16_t pr_policy; /* Linux SCTP_PR_SCTP_* */
	uint16_t gives; /* GIVES_ bits: of all else the defaults apply that the program has set */
};
#define GIVES_INFORMATION 1
#define GIVES_LIFETIME 2

/* How more messages for the same association, named in the same way, may go: down the pair, as long as the socket's state has this number. It gets
 * another one when an association ends, or may be about to: then it must be asked again whether that is there which a send names. */
struct way {
	uint16_t number;
	uint16_t streams; /* that they may name */
};

/* Before the address, if any, and the bytes of what goes outward on a socket's pair. */
struct outbound {
	uint32_t type;
	uint32_t sent_ms; /* by the monotonic clock; counts if there is a time to live */
	uint32_t address_length;
	struct send_parameters send;
};
enum outbound_type { OUTBOUND_PLUG, OUTBOUND_DATA };

struct request {
	uint16_t version;
	uint16_t operation;
	int32_t argument[4];
	struct send_parameters send;
	uint32_t address_length;
	uint32_t data_length;
};

#define NOT_SERVED (-2) /* a result: this connection is turned away, whatever was asked, and ends */

struct reply {
	int32_t result;
	int32_t error; /* errno, 0 for success */
	uint32_t address_length;
	uint32_t data_length;
};

enum inbound_type {
	INBOUND_DATA = 1,
	INBOUND_NOTIFICATION,
	INBOUND_ACCEPT, /* a connection waits */
	INBOUND_ERROR,  /* an error came: SO_ERROR tells it to whoever asks first, be it to receive */
	INBOUND_ASK,	/* a message may lie with sctpd, as the receive buffer is small: OP_FETCH */
	INBOUND_OVER,	/* STATE_OVER, for those who wait just now; whoever takes it gives it back for the others */
};

#define INBOUND_EOR 1
#define INBOUND_REST 2 /* of an INBOUND_ASK: it tells of what was given back */

struct inbound {
	uint16_t type;
	uint16_t flags;
	uint16_t stream;
	uint16_t ssn;
	uint16_t sinfo_flags; /* Linux values */
	uint16_t from_length;
	uint32_t ppid;
	uint32_t tsn;
	uint32_t cumulative_tsn;
	uint32_t context;
	uint32_t association;
	struct sockaddr_in6 from; /* or sockaddr_in, from_length tells */
};

/* The time by the monotonic clock, in ms; it comes to 0 again after 49 days. */
static inline uint32_t clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint32_t)((uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000);
}

/* Room for one descriptor in ancillary data, not for two. */
union descriptor_room {
	char bytes[CMSG_LEN(sizeof(int))];
	struct cmsghdr aligned;
};

/* Have a message bring this descriptor along. */
static inline void put_descriptor(struct msghdr *message, union descriptor_room *room, int fd)
{
	struct cmsghdr *item = &room->aligned;

	message->msg_control = room;
	message->msg_controllen = CMSG_LEN(sizeof(int));
	item->cmsg_level = SOL_SOCKET;
	item->cmsg_type = SCM_RIGHTS;
	item->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(item), &fd, sizeof(fd));
}

/* The descriptor that came with a message; -1: none. */
static inline int descriptor_of(const struct msghdr *message)
{
	const struct cmsghdr *item = CMSG_FIRSTHDR(message);
	int fd = -1;

	if (item != NULL && item->cmsg_level == SOL_SOCKET && item->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(item), sizeof(fd));
	return fd;
}

static inline socklen_t abstract_name(struct sockaddr_un *address, const char *name)
{
	socklen_t length = 0;

	*address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	while (name[length] != '\0' && length + 1 < sizeof(address->sun_path)) {
		address->sun_path[length + 1] = name[length];
		length++;
	}
	return (socklen_t)(__builtin_offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

/* The name in the service's folder for the network namespace of this thread. Return its length, 0: that namespace is unknown. */
static inline socklen_t service_name(struct sockaddr_un *address)
{
	struct stat namespace;

	*address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (stat("/proc/thread-self/ns/net", &namespace) < 0)
		return 0;
	snprintf(address->sun_path, sizeof(address->sun_path), SERVICE_NAME_PREFIX "%llu", (unsigned long long)namespace.st_ino);
	return sizeof(*address);
}

/* Whether what this user's sctpd says may be believed. */
static inline bool is_believed(uid_t user)
{
	struct stat folder;

	return user == 0 || user == geteuid() || user == getuid() ||
	       (user != NOBODY && lstat(SERVICE_FOLDER, &folder) == 0 && S_ISDIR(folder.st_mode) && folder.st_uid == user);
}

#endif
