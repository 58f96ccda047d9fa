/* The control connections of clients. */
#ifndef CONTROL_H
#define CONTROL_H

#include <stdbool.h>
#include <sys/types.h>

/* Listen on the namespace's control name. group: members may use it besides root and this process's own user; (gid_t)-1: none.
 * everyone: any user may. Return 0 or -errno (-EADDRINUSE: another sctpd serves this network namespace). */
int control_listen(gid_t group, bool everyone);

/* After that, where a stranger has the name: listen in the service's folder, which root's sctpd makes. Return 0 or -errno (-EADDRINUSE: another
 * one lives there; -ECONNREFUSED: this user may not). */
int control_listen_in_folder(void);

/* Serve this connected descriptor from now on, if its other end's user may; else close it and return false. */
bool control_serve(int fd);

/* Whether clients wait for OP_TURN; tell them that all is done that was there to be done. To be called before anything else is waited for. */
bool control_wants_turn(void);
void control_had_turn(void);

/* The time until new connections are to be accepted again, in ms; -1: they are. */
int control_next_ms(void);

/* Give up the name. */
void control_end(void);

/* Connections now open. */
int control_count(void);

#endif
