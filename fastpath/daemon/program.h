/* The BPF program: loading it, its maps, and the interfaces it is attached to. */
#ifndef FASTPATH_PROGRAM_H
#define FASTPATH_PROGRAM_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

#include "table.h"

#define MOST_MACS 8

enum mode { TC, XDP_NATIVE, XDP_GENERIC };

struct interface {
	char name[IF_NAMESIZE]; /* as it was configured */
	char now[IF_NAMESIZE];	/* where the program is attached: its present name, another one when it was renamed */
	unsigned int index; /* where the program is attached; 0: nowhere */
	unsigned int made_hook; /* at which interface it made the qdisc clsact; 0: at none, another one had */
	int link;	    /* of XDP: the program goes with this descriptor; -1: none */
	uint8_t mac[6];	    /* of the interface there, as the program of XDP knows it */
	char problem[160];  /* why it is not attached, or is under another name */
};

struct program {
	enum mode mode;
	uint32_t handle; /* of the filter in tc: by it a later daemon, and `detach`, find it */
	struct bpf_object *object;
	int file;
	int counters, decisions, destinations, zones, stations, unwired, blocks;
	int lease_file; /* of the map, for backends */
	struct leases *leases;
	struct interface interfaces[MOST_INTERFACES];
	unsigned int interface_count;
	uint8_t macs[MOST_MACS][6]; /* that frames for this host have as well, at every interface: those of VRRP */
	unsigned int mac_count;
	unsigned int looks; /* at the interfaces so far */
	bool is_changed;    /* by the last look: where it is attached, or a problem */
};

/* Load the program and open the table of its maps. Returns NULL, or what is wrong in words. */
const char *program_load(struct program *program, struct table *table, uint32_t names, uint32_t answers);

/* Which filters are this daemon's: those of a daemon with this socket. */
void program_named(struct program *program, const char *socket);

/* Attach wherever it is not attached: interfaces go and come. Returns how many it is attached to. */
unsigned int program_attach(struct program *program);

/* Remove the program from the interfaces it is attached to, whatever their names are by now. */
void program_detach(struct program *program);

/* Remove from all interfaces the filters of a daemon with this socket, which was killed or does not answer; in tc alone. */
void program_remove_leftovers(const struct program *program);

/* How often each reason was met, of all processors. */
void program_count(const struct program *program, uint64_t totals[REASON_COUNT]);

#endif
