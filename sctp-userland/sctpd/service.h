/* Running as a service: in the background, with a log; under a service manager (systemd), when it asked to be told. */
#ifndef SERVICE_H
#define SERVICE_H

/* Go to the background. The parent waits until background_serves(), or the end of this process, whose exit status becomes its own.
 * Returns the descriptor to tell it by. */
int background_start(void);

/* Open the log, while files may be opened. NULL: sctpd-UID.log in $XDG_RUNTIME_DIR, $TMPDIR or /tmp. */
void background_ready(const char *log_path);

/* Let the parent go; from now on what is logged goes to the log. */
void background_serves(int fd);

/* Connect to it while its socket may be reached: another user may not enter the folder. Without NOTIFY_SOCKET nobody is told. */
void manager_connect(void);

/* Tell it "READY=1" or "WATCHDOG=1", sd_notify(3). */
void manager_tell(const char *what);

/* How often it wants to hear that the loop goes round, in ms, else it ends and restarts this process. -1: never. */
int manager_watchdog_ms(void);

#endif
