/* The one event loop: descriptors with a function each. Single-threaded, so nothing here or above it takes locks. */
#ifndef LOOP_H
#define LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

struct watch {
	int fd;
	uint32_t events; /* EPOLL* now asked for; hang-up and error always come */
	void (*ready)(struct watch *watch, uint32_t events);
};

/* All return 0 or -errno. */
int loop_start(void);
int loop_add(struct watch *watch);
int loop_change(struct watch *watch, uint32_t events);
void loop_remove(struct watch *watch);

/* Wait at most timeout_ms (-1: for ever) and call what is ready. */
void loop_wait(int timeout_ms);

uint64_t loop_now_ms(void);

/* Whether, with this new descriptor, some are left: each call brings one along, and sctpd must be able to take it. */
bool loop_keeps_descriptors(int fd);

/* Log one line to standard error, some in a minute; no newline in the format. */
void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Standard error is a file from now on: lines tell time and process, and it begins anew when it is too long. */
void log_to_file(void);

/* See to that, before something else writes to it. */
void log_bound(void);

#endif
