// Paces TCP connection set-up towards the members of pools (cgroup sockops). The agent fills the map `members`;
// towards all other destinations, and in other network namespaces, nothing changes.
//
// A SYN that nobody answers is sent again after `first` jiffies (and again and again: the kernel spaces the first
// retries evenly, net.ipv4.tcp_syn_linear_timeouts), and the set-up is given up after `give_up_ms`.
#include <linux/bpf.h>
#include <linux/types.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define AF_INET 2
#define SOL_TCP 6
#define TCP_USER_TIMEOUT 18
#define US_PER_S 1000000ULL
#define TRIES 4 /* the first SYN and three more */
#define LEAST_PER_S 20 /* a busy server may take 50 ms to answer, however near it is */

/* The agent writes and reads these (ppu_agent/kernel/pace.py): keep both alike. */
struct member {
    __u32 address[4]; /* as on the wire; IPv4 in the first */
    __u32 port;       /* host order */
    __u32 family;
};

struct pacing {
    __u32 first_jiffies;
    __u32 give_up_ms;
    __u32 learns;       /* whether first_jiffies follows the round trip below */
    __u32 round_trip_us; /* 0: not known yet */
};

struct setting {
    __u64 netns_cookie; /* where the agent runs */
    __u64 hz;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 65536);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct member);
    __type(value, struct pacing);
} members SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct setting);
} settings SEC(".maps");

/* The program's own patience with a connection, which comes back when that is established. */
struct patience {
    __u32 own_ms;   /* 0: the kernel's */
    __u32 given_ms; /* what it has while it is set up */
};

struct {
    __uint(type, BPF_MAP_TYPE_SK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct patience);
} patiences SEC(".maps");

static __always_inline struct setting *own_setting(struct bpf_sock_ops *ops) {
    __u32 zero = 0;
    struct setting *setting = bpf_map_lookup_elem(&settings, &zero);

    if (!setting || bpf_get_netns_cookie(ops) != setting->netns_cookie)
        return 0;
    return setting;
}

static __always_inline struct pacing *pacing_of(struct bpf_sock_ops *ops) {
    struct member member = {};

    member.family = ops->family;
    member.port = bpf_ntohl(ops->remote_port);
    if (ops->family == AF_INET) {
        member.address[0] = ops->remote_ip4;
    } else {
        member.address[0] = ops->remote_ip6[0];
        member.address[1] = ops->remote_ip6[1];
        member.address[2] = ops->remote_ip6[2];
        member.address[3] = ops->remote_ip6[3];
        if (!member.address[0] && !member.address[1] && member.address[2] == bpf_htonl(0xffff)) {
            member.family = AF_INET; /* ::ffff:10.0.0.1: IPv4, from a program with one socket for both */
            member.address[0] = member.address[3];
            member.address[2] = member.address[3] = 0;
        }
    }
    return bpf_map_lookup_elem(&members, &member);
}

/* One and a half round trips where these are known, else what is configured. */
static __always_inline __u32 first_jiffies(struct pacing *pacing, __u64 hz) {
    __u64 learned = pacing->round_trip_us * hz * 3 / 2 / US_PER_S + 1;

    if (learned < hz / LEAST_PER_S)
        learned = hz / LEAST_PER_S;
    if (!pacing->learns || !pacing->round_trip_us || learned > pacing->first_jiffies)
        return pacing->first_jiffies;
    return learned;
}

static __always_inline __u32 user_timeout_ms(struct bpf_sock_ops *ops) {
    int timeout_ms = 0;

    bpf_getsockopt(ops, SOL_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
    return timeout_ms > 0 ? timeout_ms : 0;
}

static __always_inline void set_user_timeout(struct bpf_sock_ops *ops, int timeout_ms) {
    bpf_setsockopt(ops, SOL_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
}

/* Have the set-up given up after `give_up_ms`, unless the program itself has less patience. */
static __always_inline void limit(struct bpf_sock_ops *ops, __u32 give_up_ms) {
    __u32 own_ms = user_timeout_ms(ops);
    struct bpf_sock *sk = ops->sk;
    struct patience *patience;

    if (!sk)
        return;
    patience = bpf_sk_storage_get(&patiences, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
    if (!patience)
        return;
    if (patience->given_ms && own_ms == patience->given_ms) /* a set-up of this socket failed before */
        own_ms = patience->own_ms;
    patience->own_ms = own_ms;
    patience->given_ms = own_ms && own_ms < give_up_ms ? own_ms : give_up_ms;
    set_user_timeout(ops, patience->given_ms);
}

/* Give the program's own patience back, unless it has said meanwhile what it wants. */
static __always_inline void give_back(struct bpf_sock_ops *ops) {
    struct bpf_sock *sk = ops->sk;
    struct patience *patience;

    if (!sk)
        return;
    patience = bpf_sk_storage_get(&patiences, sk, 0, 0);
    if (!patience)
        return;
    if (user_timeout_ms(ops) == patience->given_ms)
        set_user_timeout(ops, patience->own_ms);
    bpf_sk_storage_delete(&patiences, sk);
}

SEC("sockops")
int pace(struct bpf_sock_ops *ops) {
    struct setting *setting = own_setting(ops);
    struct pacing *pacing = setting ? pacing_of(ops) : 0;
    __u32 first;

    ops->reply = -1;
    if (!pacing || !setting->hz)
        return 1;
    first = first_jiffies(pacing, setting->hz);
    switch (ops->op) {
    case BPF_SOCK_OPS_TIMEOUT_INIT:
        ops->reply = first;
        break;
    case BPF_SOCK_OPS_TCP_CONNECT_CB:
        limit(ops, first == pacing->first_jiffies ? pacing->give_up_ms : TRIES * first * 1000 / setting->hz);
        break;
    case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB: /* from here on the program's own wishes count */
        give_back(ops);
        if (ops->is_fullsock && ops->srtt_us)
            pacing->round_trip_us = ops->srtt_us >> 3;
        break;
    }
    return 1;
}

/* The kernel's clock, which the agent reads twice to learn how many jiffies a second has. */
SEC("tc")
int jiffies(struct __sk_buff *packet) {
    (void)packet;
    return (int)bpf_jiffies64();
}

char program_license[] SEC("license") = "Apache-2.0";
