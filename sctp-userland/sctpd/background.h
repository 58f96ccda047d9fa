#ifndef BACKGROUND_H
#define BACKGROUND_H

/* Go to the background. The parent waits until background_serves(), or the end of this process, whose exit status becomes its own.
 * Returns the descriptor to tell it by. */
int background_start(void);

/* Open the log, while files may be opened. NULL: sctpd-UID.log in $XDG_RUNTIME_DIR, $TMPDIR or /tmp. */
void background_ready(const char *log_path);

/* Let the parent go; from now on what is logged goes to the log. */
void background_serves(int fd);

#endif
