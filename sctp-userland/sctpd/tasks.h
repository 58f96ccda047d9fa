/* Tasks that wait for the end of what a user passed, which may never come. Each is a process of its own, so that the end of a killed sctpd
 * waits for none; it shares this one's memory, and counts to the user. Nothing here is for several threads at a time. */
#ifndef TASKS_H
#define TASKS_H

#include <stdbool.h>
#include <sys/types.h>

#define TASK_CODE __attribute__((no_sanitize("thread"))) /* that sanitizer takes it for the thread that started it */

/* Start one. flags: CLONE_FILES, or 0 for a copy of the caller's descriptors. It has the caller's thread-local memory, too, so what it runs
 * is TASK_CODE, makes system calls by syscall(), none that can fail (errno), and nothing else. Return its process, -1: it couldn't be started. */
pid_t task_start(uid_t user, int flags, int (*run)(void *argument), void *argument);

/* Whether this one has ended; it is forgotten then. wait: until it has. */
bool task_ended(pid_t process, bool wait);

/* How many a user has that aren't known to have ended, of all users (uid_t)-1. */
int tasks_of(uid_t user);

/* Whether a user has so many that he is to bring no more. */
bool tasks_are_too_many(uid_t user);

/* Forget those that have ended. Return when to do so next, in ms; -1: there are none. */
int tasks_run(void);

#endif
