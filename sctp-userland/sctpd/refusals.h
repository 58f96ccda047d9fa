/* ICMP errors that say that a host, or a firewall, takes no SCTP. */
#ifndef REFUSALS_H
#define REFUSALS_H

/* Watch for them. Return 0 or -errno. */
int refusals_watch(void);

#endif
