/* The rights that sctpd gives up once it serves: all capabilities but those for packets and their buffers, and all system calls but those
 * that it needs. */
#ifndef PRIVILEGE_H
#define PRIVILEGE_H

/* Take up those that it keeps, where it has them as permitted only. */
void privilege_take(void);

/* Become another user, if it is root, and give up capabilities. Return 0 or -errno. */
int privilege_drop(void);

/* Give up system calls, for all threads. Return 0 or -errno. */
int privilege_refuse_calls(void);

#endif
