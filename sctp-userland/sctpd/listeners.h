/* The TCP listeners that SCTP listeners stand beside, see shim.h: whether they are still there. */
#ifndef LISTENERS_H
#define LISTENERS_H

/* Be told at once when one is closed. */
void listeners_watch(void);

/* End what stands beside those that are gone. Every two seconds, as nothing tells of one that is only shut down. */
void listeners_look(void);

#endif
