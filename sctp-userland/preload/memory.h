/* Whether the program's pointers lead anywhere: a kernel answers a bad one with EFAULT. */
#ifndef MEMORY_H
#define MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

/* Whether this number of bytes can be read, or written. Nothing is changed; errno stays. */
bool memory_readable(const void *at, size_t size);
bool memory_writable(const void *at, size_t size);

/* Check what leads to a message's bytes, not the bytes themselves: those the kernel checks when it copies them. Return 0, or -1 and errno. */
int memory_check_message(const struct msghdr *message, bool is_received);

/* The same for a name and its length, which a call fills in. */
int memory_check_name(const struct sockaddr *name, const socklen_t *length);

#endif
