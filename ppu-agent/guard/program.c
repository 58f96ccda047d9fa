#include "program.h"
#include "../../fastpath/daemon/per_processor.h"

#include <errno.h>
#include <linux/if_arp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

/* The filters of ours on an interface: a later ppu-guard replaces those of one that was killed. */
#define TC_PRIORITY 28784
#define TC_HANDLE 1
#define RING_BYTES (1u << 20)

extern const unsigned char bpf_object_start[], bpf_object_end[];

static char last_words[256];

/* libbpf tells of everything; its last complaint explains a failure. */
static int note_complaint(enum libbpf_print_level level, const char *format, va_list arguments)
{
	if (level == LIBBPF_WARN)
		vsnprintf(last_words, sizeof(last_words), format, arguments);
	return 0;
}

static int map_of(struct program *program, const char *name)
{
	return bpf_object__find_map_fd_by_name(program->object, name);
}

static void *mapped(struct program *program, const char *name, size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *memory = mmap(NULL, (size + page - 1) / page * page, PROT_READ | PROT_WRITE, MAP_SHARED,
			    map_of(program, name), 0);
	return memory == MAP_FAILED ? NULL : memory;
}

const char *program_load(struct program *program, uint32_t buckets)
{
	static char words[512];
	libbpf_set_print(note_complaint);
	LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = "guard");
	program->object = bpf_object__open_mem(bpf_object_start, (size_t)(bpf_object_end - bpf_object_start), &options);
	if (!program->object)
		return "the BPF object can't be read; was it built?";
	bpf_map__set_max_entries(bpf_object__find_map_by_name(program->object, "buckets"), buckets);
	int failed = bpf_object__load(program->object);
	if (failed) {
		snprintf(words, sizeof(words), "the kernel does not take the BPF program: %s%s%s", strerror(-failed),
			 failed == -EPERM ? " (it needs CAP_BPF and CAP_NET_ADMIN, Linux 6.1 or later)" : "; ",
			 failed == -EPERM ? "" : last_words);
		return words;
	}
	program->in = bpf_program__fd(bpf_object__find_program_by_name(program->object, "guard_in"));
	program->out = bpf_program__fd(bpf_object__find_program_by_name(program->object, "guard_out"));
	program->counters = map_of(program, "counters");
	program->destinations = map_of(program, "destinations");
	program->notices = map_of(program, "notices");
	program->settings = mapped(program, "settings", sizeof(struct settings));
	program->members = mapped(program, "members", sizeof(struct member) * MOST_MEMBERS);
	program->buckets = mapped(program, "buckets", sizeof(struct bucket) * (size_t)buckets);
	if (!program->settings || !program->members || !program->buckets)
		return "no memory for the table of set-ups";
	program->settings->buckets = buckets;
	program->settings->wake_bytes = RING_BYTES / 4;
	if (getrandom(program->settings->secret, sizeof(program->settings->secret), 0) < 0)
		return "no random numbers";
	return NULL;
}

static bool is_ethernet(const char *name)
{
	struct ifreq request = {0};
	int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	bool known = any >= 0 && ioctl(any, SIOCGIFHWADDR, &request) == 0;
	if (any >= 0)
		close(any);
	return known && request.ifr_hwaddr.sa_family == ARPHRD_ETHER;
}

static const enum bpf_tc_attach_point POINTS[] = {BPF_TC_INGRESS, BPF_TC_EGRESS};

static int attach(struct program *program, unsigned int index)
{
	LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = (int)index, .attach_point = BPF_TC_INGRESS | BPF_TC_EGRESS);
	int failed = bpf_tc_hook_create(&hook);
	if (failed && failed != -EEXIST)
		return failed;
	for (int i = 0; i < 2; i++) {
		hook.attach_point = POINTS[i];
		LIBBPF_OPTS(bpf_tc_opts, options, .handle = TC_HANDLE, .priority = TC_PRIORITY,
			    .prog_fd = POINTS[i] == BPF_TC_INGRESS ? program->in : program->out,
			    .flags = BPF_TC_F_REPLACE);
		failed = bpf_tc_attach(&hook, &options);
		if (failed)
			return failed;
	}
	return 0;
}

/* Whether both filters are still there: somebody may have removed them, or the interface was made anew. */
static bool is_attached(const struct interface *interface, unsigned int index)
{
	if (index == 0 || index != interface->index)
		return false;
	for (int i = 0; i < 2; i++) {
		LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = (int)index, .attach_point = POINTS[i]);
		LIBBPF_OPTS(bpf_tc_opts, options, .handle = TC_HANDLE, .priority = TC_PRIORITY);
		if (bpf_tc_query(&hook, &options))
			return false;
	}
	return true;
}

/* By its index: it may have another name by now. An interface that moved to another namespace has lost the filters by that. */
static void give_back(struct interface *interface)
{
	if (interface->index == 0)
		return;
	for (int i = 0; i < 2; i++) {
		LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = (int)interface->index, .attach_point = POINTS[i]);
		LIBBPF_OPTS(bpf_tc_opts, options, .handle = TC_HANDLE, .priority = TC_PRIORITY);
		bpf_tc_detach(&hook, &options);
	}
	interface->index = 0;
}

unsigned int program_attach(struct program *program)
{
	unsigned int attached = 0;
	for (unsigned int i = 0; i < program->interface_count; i++) {
		struct interface *interface = &program->interfaces[i];
		unsigned int index = if_nametoindex(interface->name);
		if (is_attached(interface, index)) {
			attached++;
			continue;
		}
		give_back(interface);
		if (index == 0) {
			snprintf(interface->problem, sizeof(interface->problem), "there is no such interface");
			continue;
		}
		if (!is_ethernet(interface->name)) {
			snprintf(interface->problem, sizeof(interface->problem), "it is no Ethernet interface");
			continue;
		}
		int failed = attach(program, index);
		if (failed) {
			snprintf(interface->problem, sizeof(interface->problem), "the program can't be attached: %s",
				 strerror(-failed));
			continue;
		}
		interface->index = index;
		interface->problem[0] = 0;
		attached++;
	}
	return attached;
}

void program_detach(struct program *program)
{
	for (unsigned int i = 0; i < program->interface_count; i++)
		give_back(&program->interfaces[i]);
}

void program_count(const struct program *program, uint64_t totals[COUNTER_COUNT])
{
	sum_per_processor(program->counters, COUNTER_COUNT, totals);
}
