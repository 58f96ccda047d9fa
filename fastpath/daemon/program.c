#include "program.h"
#include "per_processor.h"

#include <errno.h>
#include <linux/ethtool.h>
#include <linux/if_arp.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <linux/xfrm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

/* The filter of ours on an interface: by these a later daemon, and `detach`, find it. */
#define TC_PRIORITY 5353
#define LOOKS_TO_A_QUERY 20 /* whether the filter is there, and may be; that the interface is, is seen at each look */
#define KERNEL_ANSWERS_S 1

extern const unsigned char bpf_object_start[], bpf_object_end[];

static char last_words[256];

/* libbpf tells of everything; its last complaint explains a failure. */
static int note_complaint(enum libbpf_print_level level, const char *format, va_list arguments)
{
	if (level == LIBBPF_WARN)
		vsnprintf(last_words, sizeof(last_words), format, arguments);
	return 0;
}

static void *mapped(int map, size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *memory = mmap(NULL, (size + page - 1) / page * page, PROT_READ | PROT_WRITE, MAP_SHARED, map, 0);
	return memory == MAP_FAILED ? NULL : memory;
}

static int map_of(struct program *program, const char *name)
{
	return bpf_object__find_map_fd_by_name(program->object, name);
}

/* The first byte of a file, or EOF. */
static int first_of(const char *path)
{
	FILE *file = fopen(path, "re");
	int found = file ? fgetc(file) : EOF;
	if (file)
		fclose(file);
	return found;
}

/* Whether the kernel compiles BPF programs; without that it takes none with callbacks. */
static bool has_jit(void)
{
	int found = first_of("/proc/sys/net/core/bpf_jit_enable");
	return found == '1' || found == '2';
}

/* A netlink socket that waits for its answer no longer than a moment; -1: there is none. */
static int netlink(int protocol)
{
	struct timeval wait = {.tv_sec = KERNEL_ANSWERS_S};
	int kernel = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
	if (kernel >= 0)
		setsockopt(kernel, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	return kernel;
}

/* A socket to ask the kernel about IPsec, -1 without. A kernel without IPsec has none; not a look at /proc, which a unit may hide. */
static int ask_about_ipsec(bool *has_ipsec)
{
	int kernel = netlink(NETLINK_XFRM);
	*has_ipsec = kernel >= 0 || errno != EPROTONOSUPPORT;
	return kernel;
}

/* Tell the program whether this kernel has IPsec: without it there is no helper to ask, and nothing to ask for. */
static int tell_of_ipsec(struct program *program)
{
	struct bpf_map *constants = bpf_object__find_map_by_name(program->object, ".rodata");
	size_t size;
	void *value = constants ? (void *)bpf_map__initial_value(constants, &size) : NULL;
	bool is_there;
	int kernel = ask_about_ipsec(&is_there);
	uint32_t has_ipsec = is_there;
	if (kernel >= 0)
		close(kernel);
	if (!value || size != sizeof(has_ipsec))
		return -1;
	memcpy(value, &has_ipsec, sizeof(has_ipsec));
	return 0;
}

const char *program_load(struct program *program, struct table *table, uint32_t names, uint32_t answers)
{
	static char words[512];
	libbpf_set_print(note_complaint);
	if (!table_can_wait())
		return "this kernel has no membarrier(2) for all processors (it is off with nohz_full)";
	/* There a program may be interrupted by another one on its processor, and both use the same scratch memory. */
	if (first_of("/sys/kernel/realtime") == '1')
		return "this kernel is a real-time one (PREEMPT_RT), where the program is not safe";
	LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = "fastpath");
	program->object = bpf_object__open_mem(bpf_object_start, (size_t)(bpf_object_end - bpf_object_start), &options);
	if (!program->object || tell_of_ipsec(program))
		return "the BPF object can't be read; was it built?";
	const char *wanted = program->mode == TC ? "fastpath_tc" : "fastpath_xdp";
	struct bpf_program *one;
	bpf_object__for_each_program(one, program->object)
		bpf_program__set_autoload(one, strcmp(bpf_program__name(one), wanted) == 0);
	bpf_map__set_max_entries(bpf_object__find_map_by_name(program->object, "names"), names);
	bpf_map__set_max_entries(bpf_object__find_map_by_name(program->object, "entries"), names);
	bpf_map__set_max_entries(bpf_object__find_map_by_name(program->object, "answers"), answers);
	int failed = bpf_object__load(program->object);
	if (failed) {
		/* EPERM comes before the program is looked at; what the verifier refuses is EACCES, EINVAL or E2BIG. */
		snprintf(words, sizeof(words), "the kernel does not take the BPF program: %s%s%s", strerror(-failed),
			 failed == -EPERM    ? " (it needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN)"
			 : failed == -ENOSYS ? " (this kernel is built without bpf(2))"
			 : !has_jit()	     ? " (it has no compiler of BPF programs, or net.core.bpf_jit_enable is 0)"
					     : "; is it older than Linux 6.1? ",
			 failed == -EPERM || failed == -ENOSYS || !has_jit() ? "" : last_words);
		return words;
	}
	program->file = bpf_program__fd(bpf_object__find_program_by_name(program->object, wanted));
	program->counters = map_of(program, "counters");
	program->decisions = map_of(program, "decisions");
	program->destinations = map_of(program, "destinations");
	program->lease_file = map_of(program, "leases");
	program->leases = mapped(program->lease_file, sizeof(struct leases));
	program->zones = map_of(program, "zones");
	program->blocks = map_of(program, "blocks");
	program->stations = map_of(program, "stations");
	program->unwired = map_of(program, "unwired");
	table->names = map_of(program, "names");
	table->settings = mapped(map_of(program, "settings"), sizeof(struct settings));
	table->entries = mapped(map_of(program, "entries"), sizeof(struct entry) * (size_t)names);
	table->answers = mapped(map_of(program, "answers"), sizeof(struct answer) * (size_t)answers);
	if (!program->leases || !table->settings || !table->entries || !table->answers || table_open(table, names, answers))
		return "no memory for the table of answers";
	return NULL;
}

static int interface_ioctl(const char *name, unsigned long what, struct ifreq *request)
{
	int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	snprintf(request->ifr_name, sizeof(request->ifr_name), "%s", name);
	int failed = any < 0 || ioctl(any, what, request);
	if (any >= 0)
		close(any);
	return failed;
}

/* The MAC address of an Ethernet interface, zeros of lo; false: it is none. */
static bool read_mac(const char *name, uint8_t mac[6])
{
	struct ifreq request = {0};
	if (interface_ioctl(name, SIOCGIFHWADDR, &request))
		return false;
	memcpy(mac, request.ifr_hwaddr.sa_data, 6);
	return request.ifr_hwaddr.sa_family == ARPHRD_ETHER || request.ifr_hwaddr.sa_family == ARPHRD_LOOPBACK;
}

/* Daemons with other sockets have other filters. */
void program_named(struct program *program, const char *socket)
{
	uint32_t hash = 2166136261u;
	for (; *socket; socket++)
		hash = (hash ^ (uint8_t)*socket) * 16777619u;
	program->handle = (hash & 0x7fffffff) | 1;
}

static int attach_tc(struct program *program, struct interface *interface, unsigned int index)
{
	LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = (int)index, .attach_point = BPF_TC_INGRESS);
	int failed = bpf_tc_hook_create(&hook);
	if (failed && failed != -EEXIST)
		return failed;
	if (!failed)
		interface->made_hook = index;
	LIBBPF_OPTS(bpf_tc_opts, options, .handle = program->handle, .priority = TC_PRIORITY, .prog_fd = program->file,
		    .flags = BPF_TC_F_REPLACE);
	return bpf_tc_attach(&hook, &options);
}

/* Whether a filter of anybody hangs there; also where the kernel does not say. */
static bool has_filters(unsigned int index, uint32_t parent)
{
	struct {
		struct nlmsghdr header;
		struct tcmsg message;
	} ask = {{.nlmsg_len = sizeof(ask), .nlmsg_type = RTM_GETTFILTER, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
		 {.tcm_ifindex = (int)index, .tcm_parent = parent}};
	char reply[16384] __attribute__((aligned(8)));
	int kernel = netlink(NETLINK_ROUTE);
	if (kernel < 0)
		return true;
	ssize_t size = send(kernel, &ask, sizeof(ask), 0) < 0 ? -1 : recv(kernel, reply, sizeof(reply), 0);
	close(kernel);
	const struct nlmsghdr *first = (const void *)reply;
	return size < 0 || !NLMSG_OK(first, (size_t)size) || first->nlmsg_type != NLMSG_DONE;
}

/* Remove the qdisc that holds filters, if this daemon made it and nobody has put a filter there since. */
static void remove_hook(struct interface *interface, unsigned int index)
{
	if (interface->made_hook != index || has_filters(index, TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)) ||
	    has_filters(index, TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_EGRESS)))
		return;
	LIBBPF_OPTS(bpf_tc_hook, both, .ifindex = (int)index, .attach_point = BPF_TC_INGRESS | BPF_TC_EGRESS);
	bpf_tc_hook_destroy(&both);
	interface->made_hook = 0;
}

/* Whether an interface's driver has this name. */
static bool has_driver(const char *name, const char *driver)
{
	struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};
	struct ifreq request = {.ifr_data = (void *)&info};
	return !interface_ioctl(name, SIOCETHTOOL, &request) && strcmp(info.driver, driver) == 0;
}

/* Whether VLAN tags are taken out before XDP sees a frame: all VLANs would look like one. */
static bool strips_vlan_tags(const char *name)
{
	struct ethtool_value flags = {.cmd = ETHTOOL_GFLAGS};
	struct ifreq request = {.ifr_data = (void *)&flags};
	return !interface_ioctl(name, SIOCETHTOOL, &request) && (flags.data & ETH_FLAG_RXVLAN);
}

/* How many IPsec states are in a reply of the kernel; -1: it is none. */
static long count_of_states(const struct nlmsghdr *reply, size_t size)
{
	if (!NLMSG_OK(reply, size) || reply->nlmsg_type != XFRM_MSG_NEWSADINFO)
		return -1;
	int left = (int)NLMSG_PAYLOAD(reply, NLMSG_ALIGN(sizeof(uint32_t)));
	const struct rtattr *one = (const void *)((const char *)NLMSG_DATA(reply) + NLMSG_ALIGN(sizeof(uint32_t)));
	for (; RTA_OK(one, left); one = RTA_NEXT(one, left)) {
		uint32_t count;
		if (one->rta_type != XFRMA_SAD_CNT || RTA_PAYLOAD(one) < sizeof(count))
			continue;
		memcpy(&count, RTA_DATA(one), sizeof(count));
		return count;
	}
	return -1;
}

/* Whether packets may have been decrypted before generic XDP sees them; also where the kernel does not say. */
static bool uses_ipsec(void)
{
	struct {
		struct nlmsghdr header;
		uint32_t flags;
	} ask = {{.nlmsg_len = sizeof(ask), .nlmsg_type = XFRM_MSG_GETSADINFO, .nlmsg_flags = NLM_F_REQUEST}, 0};
	char reply[512] __attribute__((aligned(8)));
	bool has_ipsec;
	int kernel = ask_about_ipsec(&has_ipsec);
	if (kernel < 0)
		return has_ipsec;
	ssize_t size = send(kernel, &ask, sizeof(ask), 0) < 0 ? -1 : recv(kernel, reply, sizeof(reply), 0);
	close(kernel);
	return size < 0 || count_of_states((const void *)reply, (size_t)size) != 0;
}

/* The reason why the program would be useless or wrong there, though it could be attached; NULL: none. */
static const char *why_not_there(const struct program *program, const char *name)
{
	uint8_t mac[6];
	if (!read_mac(name, mac))
		return "it is no Ethernet interface";
	if (program->mode == TC)
		return NULL;
	/* It lets no packet grow, and what it sends back is lost unless its peer, unseen from here, has an XDP program too. */
	if (program->mode == XDP_NATIVE && has_driver(name, "veth"))
		return "a veth interface would lose the answers in mode xdp: use tc";
	if (strips_vlan_tags(name))
		return "VLAN tags are taken out before XDP sees them: ethtool -K NAME rxvlan off, or use tc";
	if (program->mode == XDP_NATIVE)
		return NULL;
	/* Generic XDP sees what the kernel made of a frame, but not what it knows of it. */
	if (has_driver(name, "bridge"))
		return "a bridge hands VLAN tags on out of xdp-generic's sight: use tc";
	if (uses_ipsec())
		return "IPsec is in use, and xdp-generic can't tell what came encrypted: use tc";
	return NULL;
}

static void name_station(const struct program *program, unsigned int index, const uint8_t mac[6], bool is_ours)
{
	struct station station = {.interface = index};
	uint8_t one = 1;
	memcpy(station.mac, mac, 6);
	if (is_ours)
		bpf_map_update_elem(program->stations, &station, &one, BPF_ANY);
	else
		bpf_map_delete_elem(program->stations, &station);
}

/* Tell the program of XDP which MAC addresses are this host's at an interface: its own may change at any time. */
static void name_stations(const struct program *program, struct interface *interface, unsigned int index)
{
	uint8_t mac[6];
	bool is_new = interface->index != index;
	if (program->mode == TC || !read_mac(interface->now, mac) || (!is_new && memcmp(mac, interface->mac, 6) == 0))
		return;
	if (!is_new)
		name_station(program, index, interface->mac, false);
	name_station(program, index, mac, true);
	memcpy(interface->mac, mac, 6);
	for (unsigned int i = 0; i < program->mac_count; i++)
		name_station(program, index, program->macs[i], true);
}

static void forget_stations(const struct program *program, struct interface *interface)
{
	if (program->mode == TC || interface->index == 0)
		return;
	name_station(program, interface->index, interface->mac, false);
	for (unsigned int i = 0; i < program->mac_count; i++)
		name_station(program, interface->index, program->macs[i], false);
}

static int attach_xdp(struct program *program, struct interface *interface, unsigned int index)
{
	LIBBPF_OPTS(bpf_link_create_opts, options,
		    .flags = program->mode == XDP_NATIVE ? XDP_FLAGS_DRV_MODE : XDP_FLAGS_SKB_MODE);
	int link = bpf_link_create(program->file, (int)index, BPF_XDP, &options);
	if (link >= 0)
		interface->link = link;
	return link < 0 ? link : 0;
}

/* Whether our filter is still there: somebody may have removed it, or the interface was made anew. */
static bool is_attached(const struct program *program, const struct interface *interface, unsigned int index)
{
	if (index == 0 || index != interface->index)
		return false;
	if (program->mode != TC)
		return interface->link >= 0;
	/* Seldom: whoever else changes interfaces makes this question wait, and all changes of answers behind it. */
	if (program->looks % LOOKS_TO_A_QUERY)
		return true;
	LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = (int)index, .attach_point = BPF_TC_INGRESS);
	LIBBPF_OPTS(bpf_tc_opts, options, .handle = program->handle, .priority = TC_PRIORITY);
	return bpf_tc_query(&hook, &options) == 0;
}

static void drop_link(struct interface *interface)
{
	if (interface->link >= 0)
		close(interface->link);
	interface->link = -1;
}

/* Whether frames come there from this host's own senders alone, whose checksums the kernel has not worked out yet. */
static bool has_no_wire(const char *name)
{
	struct ifreq request = {0};
	if (interface_ioctl(name, SIOCGIFHWADDR, &request))
		return false;
	return request.ifr_hwaddr.sa_family == ARPHRD_LOOPBACK || has_driver(name, "veth") || has_driver(name, "tun");
}

static void note_wire(const struct program *program, unsigned int index, bool is_wired)
{
	uint8_t one = 1;
	if (is_wired)
		bpf_map_delete_elem(program->unwired, &index);
	else
		bpf_map_update_elem(program->unwired, &index, &one, BPF_ANY);
}

static void detach_tc(const struct program *program, unsigned int index)
{
	LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = (int)index, .attach_point = BPF_TC_INGRESS);
	LIBBPF_OPTS(bpf_tc_opts, options, .handle = program->handle, .priority = TC_PRIORITY);
	bpf_tc_detach(&hook, &options);
}

/* Take the program from where it is attached. An interface in another network namespace has lost its filter by the move. */
static void give_back(const struct program *program, struct interface *interface)
{
	unsigned int index = interface->index;
	if (index == 0)
		return;
	forget_stations(program, interface);
	note_wire(program, index, true);
	drop_link(interface);
	if (program->mode == TC) {
		detach_tc(program, index);
		remove_hook(interface, index);
	}
	interface->index = 0;
}

/*
 * The interface at which the program is to be: the one that has the configured name. While there is none, the interface that had it
 * keeps the program under its new name. 0: nowhere. `now` is its present name.
 */
static unsigned int find_interface(struct interface *interface)
{
	unsigned int index = if_nametoindex(interface->name);
	if (index)
		strcpy(interface->now, interface->name);
	else if (interface->index && if_indextoname(interface->index, interface->now))
		index = interface->index;
	return index;
}

/* Attach at this interface. Returns NULL, or why not. */
static const char *attach(struct program *program, struct interface *interface, unsigned int index)
{
	static char words[160];
	const char *why = why_not_there(program, interface->now);
	if (why)
		return why;
	int failed = program->mode == TC ? attach_tc(program, interface, index) : attach_xdp(program, interface, index);
	if (!failed)
		return NULL;
	snprintf(words, sizeof(words), "the program can't be attached: %s%s", strerror(-failed),
		 failed == -EBUSY				? " (another XDP program is there)"
		 : failed == -EOPNOTSUPP && program->mode != TC ? " (its driver has no XDP: use tc or xdp-generic)"
								: "");
	return words;
}

static void note_problem(struct program *program, struct interface *interface, const char *problem)
{
	program->is_changed |= strcmp(interface->problem, problem) != 0;
	snprintf(interface->problem, sizeof(interface->problem), "%s", problem);
}

/* An attached interface has no problem but another name. The kernel allows nearly all bytes in a name, JSON does not. */
static void note_name(struct program *program, struct interface *interface)
{
	char words[160] = "", now[IF_NAMESIZE];
	strcpy(now, interface->now);
	for (char *at = now; *at; at++)
		if (*at <= ' ' || *at > '~' || *at == '"' || *at == '\\')
			*at = '?';
	if (strcmp(interface->now, interface->name) != 0)
		snprintf(words, sizeof(words), "it was renamed to %s, and answers there: name it so in the options", now);
	note_problem(program, interface, words);
}

unsigned int program_attach(struct program *program)
{
	unsigned int attached = 0;
	program->is_changed = program->looks++ == 0;
	for (unsigned int i = 0; i < program->interface_count; i++) {
		struct interface *interface = &program->interfaces[i];
		unsigned int index = find_interface(interface);
		bool is_there = is_attached(program, interface, index);
		bool may_stay = is_there && (program->mode == TC || program->looks % LOOKS_TO_A_QUERY ||
					     !why_not_there(program, interface->now));
		if (may_stay) {
			name_stations(program, interface, index);
			note_name(program, interface);
			attached++;
			continue;
		}
		bool is_renamed = strcmp(interface->now, interface->name) != 0;
		program->is_changed |= interface->index != index;
		give_back(program, interface);
		/* The interface of that index is a stranger when the program was not there any more. */
		const char *problem = index == 0 || (is_renamed && !is_there) ? "there is no such interface"
									      : attach(program, interface, index);
		if (problem) {
			note_problem(program, interface, problem);
			continue;
		}
		name_stations(program, interface, index); /* until then it answers nothing */
		note_wire(program, index, !has_no_wire(interface->now));
		interface->index = index;
		note_name(program, interface);
		attached++;
	}
	return attached;
}

void program_detach(struct program *program)
{
	for (unsigned int i = 0; i < program->interface_count; i++)
		give_back(program, &program->interfaces[i]);
}

void program_remove_leftovers(const struct program *program)
{
	libbpf_set_print(note_complaint);
	struct if_nameindex *all = if_nameindex();
	for (const struct if_nameindex *one = all; one && one->if_index; one++)
		detach_tc(program, one->if_index);
	if (all)
		if_freenameindex(all);
}

void program_count(const struct program *program, uint64_t totals[REASON_COUNT])
{
	sum_per_processor(program->counters, REASON_COUNT, totals);
}
