/* The rules file: which host may speak which way to a registrar. Text in, rules out; no files, no clocks. */
#pragma once
#include "address.h"

/* Types of parameters. */
#define TRANSPORT_SCTP 4
#define TRANSPORT_TCP 5
#define TRANSPORT_UDP 6

#define MAX_HANDLE 32
#define MAX_RULES 4096 /* and as many of pools */
#define MAX_ITEMS 64 /* handles, or networks, of one rule */
#define MAX_RULES_BYTES (1 << 20)
#define SENTINEL_PREFIX "rspdns-sentinel-"

enum role {
	ROLE_REGISTRAR = 1,
	ROLE_FOLLOWER = 2, /* reads ENRP */
	ROLE_USER = 4, /* asks for handles */
	ROLE_ELEMENT = 8, /* registers */
};

struct pattern {
	uint8_t bytes[MAX_HANDLE];
	uint8_t length;
	bool is_prefix; /* ended with "*" */
};

struct rule {
	enum role role;
	struct network hosts;
	unsigned reports_per_s;
	/* For elements only: */
	struct pattern *handles;
	size_t handle_count;
	struct network *addresses; /* none: only the hosts of the rule */
	size_t address_count;
	unsigned most; /* registrations of each host */
};

/* All elements of a pool have to be of one kind: rspregistrar refuses those that differ from the pool's first. */
struct pool {
	struct pattern *handles;
	size_t handle_count;
	uint32_t policy; /* its type; 0: any */
	uint16_t protocol; /* the type of the transport parameter; 0: any */
	uint16_t use; /* 1: for data and control channel, 0: for data */
};

struct rules {
	struct rule *all;
	size_t count;
	struct pool *pools;
	size_t pool_count;
	uint32_t life_ms; /* the longest registration life */
};

/* Read the text of a rules file, which is changed meanwhile. NULL, and what is wrong in `problem`, when it is none. */
struct rules *rules_read(char *text, char *problem, size_t problem_bytes);
void rules_free(struct rules *rules);
/* The roles of the host, as bits. */
unsigned rules_roles(const struct rules *rules, const struct address *host);
bool rule_has_handle(const struct rule *rule, const uint8_t *handle, size_t length);
bool pool_has_handle(const struct pool *pool, const uint8_t *handle, size_t length);
bool rule_has_address(const struct rule *rule, const struct address *address);
