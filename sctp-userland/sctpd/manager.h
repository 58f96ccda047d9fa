/* The service manager (systemd), when it asked to be told. */
#ifndef MANAGER_H
#define MANAGER_H

/* Tell it "READY=1" or "WATCHDOG=1", sd_notify(3). */
void manager_tell(const char *what);

/* How often it wants to hear that the loop goes round, in ms, else it ends and restarts this process. -1: never. */
int manager_watchdog_ms(void);

#endif
