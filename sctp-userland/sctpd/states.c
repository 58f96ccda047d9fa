/* What each socket's clients may know without asking: a word for each socket, in memory that all of them can read. */
#include "states.h"

#include <fcntl.h>
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../protocol.h"

static int memory = -1;
static uint32_t *words;
static uint32_t free_slots[STATES_MAX], free_count;

int states_start(void)
{
	const size_t size = STATES_MAX * sizeof(*words);
	void *mapped;

	memory = memfd_create("sctpd-states", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (memory < 0 || ftruncate(memory, (off_t)size) < 0)
		return -errno;
	mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	if (mapped == MAP_FAILED)
		return -errno;
	/* Clients are given it to read (Linux 5.1; before, they are believed not to write). */
	fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE);
	words = mapped;
	while (free_count < STATES_MAX) {
		free_slots[free_count] = STATES_MAX - 1 - free_count;
		free_count++;
	}
	return 0;
}

int states_memory(void)
{
	return memory;
}

uint32_t states_take(void)
{
	if (words == NULL || free_count == 0)
		return STATES_MAX;
	states_tell(free_slots[--free_count], 0);
	return free_slots[free_count];
}

void states_tell(uint32_t slot, uint32_t state)
{
	if (slot < STATES_MAX)
		__atomic_store_n(&words[slot], state, __ATOMIC_RELEASE);
}

void states_give_back(uint32_t slot)
{
	if (slot < STATES_MAX)
		free_slots[free_count++] = slot;
}
