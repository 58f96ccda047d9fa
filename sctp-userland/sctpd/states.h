/* What each socket's clients may know without asking: a word for each socket, in memory that all of them can read. */
#ifndef STATES_H
#define STATES_H

#include <stdint.h>

/* Return 0 or -errno. */
int states_start(void);

/* The descriptor of that memory. */
int states_memory(void);

/* A socket's slot; STATES_MAX: none is left. Tell its state (STATE_ bits). Its slot may be another's from now on; until then the last state
 * stays there, for who reads what the socket has left. */
uint32_t states_take(void);
void states_tell(uint32_t slot, uint32_t state);
void states_give_back(uint32_t slot);

#endif
