/* The rules of sctp-run --shim: which TCP connections go by SCTP. For the preload library and for sctp-shim. */
#ifndef RULES_H
#define RULES_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define RULES_MAX 256
#define RULES_ADDRESSES_MAX 16
#define RULES_VARIABLE "SCTP_SHIM" /* the environment's name of the file */

enum rule_end { END_NONE, END_LOCAL, END_REMOTE };
enum rule_use { USE_NONE, USE_SCTP, USE_TCP };
enum rule_try { TRY_NONE, TRY_FIRST, TRY_BACKGROUND };

struct rule {
	int line; /* of the file; 0: the default, where the file has none */
	enum rule_end end;
	enum rule_use use;
	enum rule_try try;
	struct in6_addr network; /* IPv4 as ::ffff:a.b.c.d */
	int prefix;		 /* bits of it that count */
	int first_port, last_port;
	int rto_min_ms, wait_ms;
};

struct rules {
	struct rule all[RULES_MAX + 2]; /* first match wins; the last two are the defaults */
	int count;
	struct sockaddr_in6 addresses[RULES_ADDRESSES_MAX]; /* or sockaddr_in: of this host, that all associations use */
	int address_count;
};

/* Read a file. Each mistake is a line to `mistakes`: file, line, what to write instead. Return their number. */
int rules_read(struct rules *rules, const char *path, FILE *mistakes);

/* The rule that decides about an address: of a listener, or one that is connected to. NULL: it is of neither family. */
const struct rule *rules_match(const struct rules *rules, enum rule_end end, const struct sockaddr *address);

#endif
