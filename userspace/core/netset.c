/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of named sets.
 *
 * No prefix stands in two sets: a policy may allow one set and deny another, and at one and the same prefix the denial would
 * win. So what both a registry and a set of its own name (10.0.0.0/8) is in the set of its own. 64:ff9b::/96 is in none: it is
 * decoded and judged as the IPv4 address inside, which hosts without IPv4 need to reach anything.
 */
#include "core/netset.h"

#include <string.h>

const struct netset_info netset_info[NETSETS] = {
    [NETSET_PRIVATE] = {"@private", "networks that are not routed on the internet: RFC 1918, RFC 4193, RFC 6598, site-local",
			false},
    [NETSET_METADATA] = {"@metadata", "where clouds hand out credentials, and their platform endpoints", false},
    [NETSET_SPECIAL_PURPOSE] =
	{"@special-purpose", "loopback, link-local, multicast, documentation and the rest of IANA's special-purpose registries",
	 false},
    [NETSET_HOST] = {"@host", "this host's own addresses, kept current", true},
    [NETSET_RESOLVER] = {"@resolver", "the name servers in /etc/resolv.conf, as Weir sees it", true},
};

#define IANA4 "IANA IPv4 special-purpose registry, "
#define IANA6 "IANA IPv6 special-purpose registry, "

/* By set, then family, then address, but for the one address that most clouds share: it comes first where one is named. */
/* clang-format off */
const struct netset_row netset_rows[] = {
    {NETSET_PRIVATE, "10.0.0.0/8", "private network", "RFC 1918 section 3"},
    {NETSET_PRIVATE, "100.64.0.0/10", "shared address space of carriers and clouds", "RFC 6598 section 7"},
    {NETSET_PRIVATE, "172.16.0.0/12", "private network", "RFC 1918 section 3"},
    {NETSET_PRIVATE, "192.168.0.0/16", "private network", "RFC 1918 section 3"},
    {NETSET_PRIVATE, "fc00::/7", "unique local addresses", "RFC 4193 section 3"},
    {NETSET_PRIVATE, "fec0::/10", "site-local addresses, deprecated and still in use", "RFC 3879 section 4"},

    {NETSET_METADATA, "169.254.169.254/32", "instance metadata of AWS, Google Cloud, Azure, Oracle, OpenStack and others", "Amazon EC2 user guide, instance metadata"},
    {NETSET_METADATA, "10.96.0.1/32", "Kubernetes API, at kubeadm's default", "Kubernetes documentation, kubeadm init"},
    {NETSET_METADATA, "100.100.2.136/32", "Alibaba Cloud name server", "Alibaba Cloud VPC documentation"},
    {NETSET_METADATA, "100.100.2.138/32", "Alibaba Cloud name server", "Alibaba Cloud VPC documentation"},
    {NETSET_METADATA, "100.100.100.200/32", "Alibaba Cloud instance metadata", "Alibaba Cloud ECS documentation, instance metadata"},
    {NETSET_METADATA, "168.63.129.16/32", "Azure platform: agent, name server, probes", "Azure documentation, What is IP address 168.63.129.16"},
    {NETSET_METADATA, "169.254.0.23/32", "Tencent Cloud instance metadata", "Tencent Cloud CVM documentation, instance metadata"},
    {NETSET_METADATA, "169.254.42.42/32", "Scaleway instance metadata", "Scaleway documentation, instance metadata"},
    {NETSET_METADATA, "169.254.169.123/32", "AWS time server", "Amazon EC2 user guide, Time Sync Service"},
    {NETSET_METADATA, "169.254.169.250/32", "AWS licence activation for Windows", "Amazon EC2 user guide, Windows instances"},
    {NETSET_METADATA, "169.254.169.251/32", "AWS licence activation for Windows", "Amazon EC2 user guide, Windows instances"},
    {NETSET_METADATA, "169.254.169.252/32", "GKE metadata server of a node", "Google Kubernetes Engine documentation, Workload Identity"},
    {NETSET_METADATA, "169.254.169.253/32", "AWS name server", "Amazon VPC user guide, DNS attributes"},
    {NETSET_METADATA, "169.254.170.2/32", "Amazon ECS task credentials", "Amazon ECS developer guide, task IAM role"},
    {NETSET_METADATA, "169.254.170.23/32", "Amazon EKS Pod Identity credentials", "Amazon EKS user guide, EKS Pod Identity"},
    {NETSET_METADATA, "192.0.0.192/32", "Oracle Cloud instance metadata, legacy", "Oracle Cloud Infrastructure documentation, instance metadata"},
    {NETSET_METADATA, "fd00:42::42/128", "Scaleway instance metadata", "Scaleway documentation, instance metadata"},
    {NETSET_METADATA, "fd00:c1::a9fe:a9fe/128", "Oracle Cloud instance metadata", "Oracle Cloud Infrastructure documentation, instance metadata"},
    {NETSET_METADATA, "fd00:ec2::23/128", "Amazon EKS Pod Identity credentials", "Amazon EKS user guide, EKS Pod Identity"},
    {NETSET_METADATA, "fd00:ec2::123/128", "AWS time server", "Amazon EC2 user guide, Time Sync Service"},
    {NETSET_METADATA, "fd00:ec2::253/128", "AWS name server", "Amazon VPC user guide, DNS attributes"},
    {NETSET_METADATA, "fd00:ec2::254/128", "AWS instance metadata", "Amazon EC2 user guide, instance metadata"},
    {NETSET_METADATA, "fd00:a9fe:a9fe::1/128", "Linode instance metadata", "Linode documentation, Metadata service"},
    {NETSET_METADATA, "fd20:ce::254/128", "Google Cloud instance metadata", "Compute Engine documentation, metadata server"},
    {NETSET_METADATA, "fe80::a9fe:a9fe/128", "OpenStack instance metadata", "OpenStack Networking documentation, metadata over IPv6"},

    {NETSET_SPECIAL_PURPOSE, "0.0.0.0/8", "this network; 0.0.0.0 means this host", IANA4 "RFC 791 section 3.2"},
    {NETSET_SPECIAL_PURPOSE, "127.0.0.0/8", "loopback", IANA4 "RFC 1122 section 3.2.1.3"},
    {NETSET_SPECIAL_PURPOSE, "169.254.0.0/16", "link-local", IANA4 "RFC 3927"},
    {NETSET_SPECIAL_PURPOSE, "192.0.0.0/24", "IETF protocol assignments", IANA4 "RFC 6890 section 2.1"},
    {NETSET_SPECIAL_PURPOSE, "192.0.0.0/29", "IPv4 service continuity (DS-Lite)", IANA4 "RFC 7335"},
    {NETSET_SPECIAL_PURPOSE, "192.0.0.8/32", "IPv4 dummy address", IANA4 "RFC 7600"},
    {NETSET_SPECIAL_PURPOSE, "192.0.0.9/32", "Port Control Protocol anycast", IANA4 "RFC 7723"},
    {NETSET_SPECIAL_PURPOSE, "192.0.0.10/32", "TURN anycast", IANA4 "RFC 8155"},
    {NETSET_SPECIAL_PURPOSE, "192.0.0.170/32", "NAT64 and DNS64 discovery", IANA4 "RFC 7050 section 2.2"},
    {NETSET_SPECIAL_PURPOSE, "192.0.0.171/32", "NAT64 and DNS64 discovery", IANA4 "RFC 7050 section 2.2"},
    {NETSET_SPECIAL_PURPOSE, "192.0.2.0/24", "documentation (TEST-NET-1)", IANA4 "RFC 5737"},
    {NETSET_SPECIAL_PURPOSE, "192.31.196.0/24", "AS112 sink for reverse look-ups", IANA4 "RFC 7535"},
    {NETSET_SPECIAL_PURPOSE, "192.52.193.0/24", "automatic multicast tunneling relays", IANA4 "RFC 7450"},
    {NETSET_SPECIAL_PURPOSE, "192.88.99.0/24", "6to4 relay anycast, deprecated", IANA4 "RFC 7526"},
    {NETSET_SPECIAL_PURPOSE, "192.88.99.2/32", "6a44 relay anycast", IANA4 "RFC 6751"},
    {NETSET_SPECIAL_PURPOSE, "192.175.48.0/24", "AS112 sink for reverse look-ups", IANA4 "RFC 7534"},
    {NETSET_SPECIAL_PURPOSE, "198.18.0.0/15", "benchmarking", IANA4 "RFC 2544"},
    {NETSET_SPECIAL_PURPOSE, "198.51.100.0/24", "documentation (TEST-NET-2)", IANA4 "RFC 5737"},
    {NETSET_SPECIAL_PURPOSE, "203.0.113.0/24", "documentation (TEST-NET-3)", IANA4 "RFC 5737"},
    {NETSET_SPECIAL_PURPOSE, "224.0.0.0/4", "multicast", "RFC 5771 section 3"},
    {NETSET_SPECIAL_PURPOSE, "240.0.0.0/4", "reserved (class E)", IANA4 "RFC 1112 section 4"},
    {NETSET_SPECIAL_PURPOSE, "255.255.255.255/32", "limited broadcast", IANA4 "RFC 8190, RFC 919 section 7"},
    {NETSET_SPECIAL_PURPOSE, "::/96", "IPv4-compatible addresses, deprecated", "RFC 4291 section 2.5.5.1"},
    {NETSET_SPECIAL_PURPOSE, "::/128", "unspecified address, which means this host", IANA6 "RFC 4291"},
    {NETSET_SPECIAL_PURPOSE, "::1/128", "loopback", IANA6 "RFC 4291"},
    {NETSET_SPECIAL_PURPOSE, "::ffff:0.0.0.0/96", "IPv4-mapped addresses", IANA6 "RFC 4291"},
    {NETSET_SPECIAL_PURPOSE, "::ffff:0:0:0/96", "IPv4-translated addresses", "RFC 2765 section 2.1"},
    {NETSET_SPECIAL_PURPOSE, "64:ff9b:1::/48", "NAT64 inside one network", IANA6 "RFC 8215"},
    {NETSET_SPECIAL_PURPOSE, "100::/64", "discarded on the way", IANA6 "RFC 6666"},
    {NETSET_SPECIAL_PURPOSE, "100:0:0:1::/64", "dummy prefix", IANA6 "RFC 9780"},
    {NETSET_SPECIAL_PURPOSE, "2001::/23", "IETF protocol assignments", IANA6 "RFC 2928"},
    {NETSET_SPECIAL_PURPOSE, "2001::/32", "Teredo", IANA6 "RFC 4380"},
    {NETSET_SPECIAL_PURPOSE, "2001:1::1/128", "Port Control Protocol anycast", IANA6 "RFC 7723"},
    {NETSET_SPECIAL_PURPOSE, "2001:1::2/128", "TURN anycast", IANA6 "RFC 8155"},
    {NETSET_SPECIAL_PURPOSE, "2001:1::3/128", "DNS-SD registration anycast", IANA6 "RFC 9665"},
    {NETSET_SPECIAL_PURPOSE, "2001:2::/48", "benchmarking", IANA6 "RFC 5180"},
    {NETSET_SPECIAL_PURPOSE, "2001:3::/32", "automatic multicast tunneling relays", IANA6 "RFC 7450"},
    {NETSET_SPECIAL_PURPOSE, "2001:4:112::/48", "AS112 sink for reverse look-ups", IANA6 "RFC 7535"},
    {NETSET_SPECIAL_PURPOSE, "2001:10::/28", "ORCHID, deprecated", IANA6 "RFC 4843"},
    {NETSET_SPECIAL_PURPOSE, "2001:20::/28", "ORCHIDv2", IANA6 "RFC 7343"},
    {NETSET_SPECIAL_PURPOSE, "2001:30::/28", "drone remote identification", IANA6 "RFC 9374"},
    {NETSET_SPECIAL_PURPOSE, "2001:db8::/32", "documentation", IANA6 "RFC 3849"},
    {NETSET_SPECIAL_PURPOSE, "2002::/16", "6to4", IANA6 "RFC 3056"},
    {NETSET_SPECIAL_PURPOSE, "2620:4f:8000::/48", "AS112 sink for reverse look-ups", IANA6 "RFC 7534"},
    {NETSET_SPECIAL_PURPOSE, "3fff::/20", "documentation", IANA6 "RFC 9637"},
    {NETSET_SPECIAL_PURPOSE, "5f00::/16", "segment routing identifiers", IANA6 "RFC 9602"},
    {NETSET_SPECIAL_PURPOSE, "fe80::/10", "link-local", IANA6 "RFC 4291"},
    {NETSET_SPECIAL_PURPOSE, "ff00::/8", "multicast", "RFC 4291 section 2.7"},
};
/* clang-format on */
const size_t netset_row_count = sizeof netset_rows / sizeof *netset_rows;

int netset_find(const char *name, size_t len)
{
	for (int i = 0; i < NETSETS; i++)
		if (strlen(netset_info[i].name) == len && !memcmp(netset_info[i].name, name, len))
			return i;
	return -1;
}
