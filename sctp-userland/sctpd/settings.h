/* The options on the command line. */
#ifndef SETTINGS_H
#define SETTINGS_H

#include <stdbool.h>
#include <sys/types.h>

#include "stack.h"

struct settings {
	struct stack_settings stack;
	long idle_exit_s; /* -1: stay */
	long wait_s; /* for another one's end */
	gid_t group; /* (gid_t)-1: none */
	bool everyone, detach, status, json;
	const char *log; /* of a process in the background; NULL: the usual file */
};

/* The settings; the limits are set. A mistake is reported, and ends the process. */
struct settings settings_parse(int argc, char **argv);

#endif
