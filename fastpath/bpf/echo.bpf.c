/*
 * Turns UDP datagrams to port 5399 round, and does nothing else: the cheapest answer there can be. Benchmarks take what asking
 * costs with it off what asking a name server costs. No part of rspdns-fastpath.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define PORT 5399

SEC("tc")
int echo(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *ethernet = data;
	struct iphdr *ip = data + sizeof(*ethernet);
	struct udphdr *udp = (void *)(ip + 1);
	if ((void *)(udp + 1) > end || ethernet->h_proto != bpf_htons(ETH_P_IP) || ip->ihl != 5 || ip->protocol != 17 ||
	    udp->dest != bpf_htons(PORT))
		return TC_ACT_UNSPEC;
	__be32 address = ip->saddr;
	ip->saddr = ip->daddr;
	ip->daddr = address;
	__be16 port = udp->source;
	udp->source = udp->dest;
	udp->dest = port;
	__u8 mac[ETH_ALEN];
	__builtin_memcpy(mac, ethernet->h_source, ETH_ALEN);
	__builtin_memcpy(ethernet->h_source, ethernet->h_dest, ETH_ALEN);
	__builtin_memcpy(ethernet->h_dest, mac, ETH_ALEN);
	return bpf_redirect(skb->ifindex, 0);
}

char _license[] SEC("license") = "Apache-2.0";
