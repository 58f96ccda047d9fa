#include "fds.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "../protocol.h"
#include "channel.h"
#include "real.h"

#define KEPT 16384
#define SLOT_BITS 17 /* of the state, STATES_MAX: none */
#define NO_SLOT STATES_MAX
#define KIND_BITS 2
enum kind { KIND_OTHER, KIND_SCTP, KIND_SHIM };
#define NEIGHBOURS 4 /* words that a way may be kept in */

/* inode, slot of the state, kind: one word, so that threads never see halves of two; 0: nothing known */
static uint64_t known[KEPT];

static uint64_t as_word(unsigned long inode, unsigned long slot, enum kind kind)
{
	return (uint64_t)inode << (SLOT_BITS + KIND_BITS) | slot << KIND_BITS | kind;
}

static uint64_t ask_kernel(int fd, unsigned long inode)
{
	static const char prefix[] = SOCKET_NAME_PREFIX, shim_prefix[] = SHIM_NAME_PREFIX;
	struct sockaddr_un name;
	socklen_t length = sizeof(name) - 1;
	unsigned long slot;

	memset(&name, 0, sizeof(name));
	if (real()->getpeername(fd, (struct sockaddr *)&name, &length) < 0 || name.sun_family != AF_UNIX || name.sun_path[0] != '\0')
		return as_word(inode, NO_SLOT, KIND_OTHER);
	if (strncmp(name.sun_path + 1, shim_prefix, sizeof(shim_prefix) - 1) == 0)
		return as_word(inode, NO_SLOT, KIND_SHIM);
	if (length <= offsetof(struct sockaddr_un, sun_path) + sizeof(prefix) || memcmp(name.sun_path + 1, prefix, sizeof(prefix) - 1) != 0)
		return as_word(inode, NO_SLOT, KIND_OTHER);
	slot = strtoul(name.sun_path + sizeof(prefix), NULL, 16);
	return as_word(inode, slot < STATES_MAX ? slot : NO_SLOT, KIND_SCTP);
}

/* 0: it isn't a socket. */
uint64_t fd_known(int fd)
{
	int saved = errno;
	struct stat status;
	uint64_t word;

	if (fd < 0 || fstat(fd, &status) < 0 || !S_ISSOCK(status.st_mode)) {
		errno = saved;
		return 0;
	}
	word = fd < KEPT ? __atomic_load_n(&known[fd], __ATOMIC_RELAXED) : 0;
	if (word != 0 && word >> (SLOT_BITS + KIND_BITS) == status.st_ino)
		return word;
	/* An unconnected socket can still become one's own AF_UNIX client, but never an SCTP socket: those come connected. */
	word = ask_kernel(fd, status.st_ino);
	if (fd < KEPT)
		__atomic_store_n(&known[fd], word, __ATOMIC_RELAXED);
	errno = saved;
	return word;
}

bool known_is_sctp(uint64_t word)
{
	return (word & ((1 << KIND_BITS) - 1)) == KIND_SCTP;
}

bool known_is_shim(uint64_t word)
{
	return (word & ((1 << KIND_BITS) - 1)) == KIND_SHIM;
}

bool fd_is_sctp(int fd)
{
	return known_is_sctp(fd_known(fd));
}

/* Whether this is memory for all states, and stays so: reading beyond its end would be SIGBUS. */
static bool is_whole(int fd)
{
	const int seals = fcntl(fd, F_GET_SEALS);
	struct stat status;

	return seals >= 0 && seals & F_SEAL_SHRINK && fstat(fd, &status) == 0 && status.st_size >= (off_t)(STATES_MAX * sizeof(uint32_t));
}

/* The states of the sctpd that serves now; of another one before, the memory stays: a thread may be looking at it. */
static const uint32_t *states(void)
{
	static const uint32_t *mapped;
	static ino_t inode;
	static __thread uint32_t looked; /* at what memory the sctpd of this connection has; its process says nothing in another PID namespace */
	struct exchange exchange = { .request = { .operation = OP_STATES } };
	const uint32_t *found = __atomic_load_n(&mapped, __ATOMIC_ACQUIRE);
	struct stat status;
	void *made;

	if (found != NULL && looked == channel_number())
		return found;
	if (channel_call(-1, &exchange) < 0)
		return errno == EMFILE || errno == ENFILE ? found : NULL;
	looked = channel_number();
	if (found != NULL && fstat(exchange.descriptor, &status) == 0 && status.st_ino == __atomic_load_n(&inode, __ATOMIC_RELAXED)) {
		close(exchange.descriptor);
		return found;
	}
	made = is_whole(exchange.descriptor) ? mmap(NULL, STATES_MAX * sizeof(*found), PROT_READ, MAP_SHARED, exchange.descriptor, 0) : MAP_FAILED;
	if (fstat(exchange.descriptor, &status) == 0)
		__atomic_store_n(&inode, status.st_ino, __ATOMIC_RELAXED);
	close(exchange.descriptor);
	if (made == MAP_FAILED)
		return NULL;
	__atomic_store_n(&mapped, made, __ATOMIC_RELEASE);
	return made;
}

uint32_t known_state(uint64_t word)
{
	int saved = errno;
	unsigned long slot = word >> KIND_BITS & ((1UL << SLOT_BITS) - 1);
	const uint32_t *all = slot < STATES_MAX ? states() : NULL;

	errno = saved;
	return all != NULL ? __atomic_load_n(&all[slot], __ATOMIC_ACQUIRE) : 0;
}

/* One word for each way: check, number, streams. One word, so that threads never see halves of two. NULL: no memory for it. */
static uint64_t *ways(void)
{
	static uint64_t *mapped;
	uint64_t *found = __atomic_load_n(&mapped, __ATOMIC_ACQUIRE);
	int saved = errno;
	void *made;

	if (found != NULL)
		return found;
	made = mmap(NULL, STATES_MAX * sizeof(*found), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	errno = saved;
	if (made == MAP_FAILED)
		return NULL;
	if (__atomic_compare_exchange_n(&mapped, &found, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return made;
	munmap(made, STATES_MAX * sizeof(*found));
	return found;
}

/* If two ways could have the same word, it says which one is kept there. */
static uint32_t check_of(uint64_t word, uint64_t destination)
{
	return (uint32_t)(word >> (SLOT_BITS + KIND_BITS)) ^ (uint32_t)(destination >> 32);
}

/* The word that has this way, else one to keep it in. */
static uint64_t *way_of(uint64_t word, uint64_t destination)
{
	unsigned long slot = word >> KIND_BITS & ((1UL << SLOT_BITS) - 1), i;
	uint64_t *all = slot < STATES_MAX ? ways() : NULL, *at, kept;

	if (all == NULL)
		return NULL;
	for (i = 0; i < NEIGHBOURS; i++) {
		at = &all[(slot + destination + i) % STATES_MAX];
		kept = __atomic_load_n(at, __ATOMIC_RELAXED);
		if (kept == 0 || kept >> 32 == check_of(word, destination))
			return at;
	}
	return &all[(slot + destination) % STATES_MAX];
}

struct way known_way(uint64_t word, uint64_t destination)
{
	const uint64_t *at = way_of(word, destination);
	uint64_t kept = at != NULL ? __atomic_load_n(at, __ATOMIC_RELAXED) : 0;

	if (kept >> 32 != check_of(word, destination))
		return (struct way){ 0 };
	return (struct way){ (uint16_t)(kept >> 16), (uint16_t)kept };
}

void known_keep_way(uint64_t word, uint64_t destination, struct way way)
{
	uint64_t *at = way_of(word, destination);

	if (at != NULL)
		__atomic_store_n(at, (uint64_t)check_of(word, destination) << 32 | (uint32_t)way.number << 16 | way.streams, __ATOMIC_RELAXED);
}

bool fd_is_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && flags & O_NONBLOCK;
}
