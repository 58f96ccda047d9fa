/* What sctpd gives up once it serves: all capabilities but those for packets and their buffers, other programs, files to write to. */
#ifndef PRIVILEGE_H
#define PRIVILEGE_H

/* Return 0 or -errno. */
int privilege_drop(void);

#endif
