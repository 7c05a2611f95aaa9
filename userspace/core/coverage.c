/* SPDX-License-Identifier: Apache-2.0 */
#include "core/coverage.h"

#include <stdarg.h>
#include <stdio.h>

const char *const coverage_names[3] = {"full", "partial", "refused"};

#define PARTIAL COVERAGE_PARTIAL, false
#define REFUSED COVERAGE_REFUSED, false
#define FORCEABLE COVERAGE_REFUSED, true

const struct weakness_row weakness_rows[WEAKNESSES] = {
    [WEAK_SECCOMP] = {"seccomp", PARTIAL,
		      "The policy restricts sockets or system calls, and no filter can be put on a process from outside.",
		      "Write the profile with `weir policy export --format oci-seccomp` and start the workload with it."},
    [WEAK_LIMITS] =
	{"limits", PARTIAL, "The policy asks for limits that its cgroup does not have.",
	 "Set them where the workload is described: the pod's resources, the unit's settings, the container's options."},
    [WEAK_LISTEN] = {"listen", PARTIAL, "The policy refuses listen(), which only a filter of system calls could do.",
		     "Start the workload with the profile that `weir policy export --format oci-seccomp` writes; connections "
		     "from outside are refused as \"inbound\" says in any case."},
    [WEAK_NET_RAW] =
	{"net_raw", PARTIAL,
	 "With CAP_NET_RAW it can open packet sockets, which send frames below the place where packets are judged.",
	 "Drop the capability NET_RAW, and forbid gaining privileges (allowPrivilegeEscalation: false, "
	 "--security-opt no-new-privileges)."},
    [WEAK_NET_ADMIN] =
	{"net_admin", PARTIAL,
	 "With CAP_NET_ADMIN it can set up tunnels and rewriting of packets behind the place where they are judged.",
	 "Drop the capability NET_ADMIN."},
    [WEAK_PACKET_SOCKET] = {"packet_socket", PARTIAL, "It has a packet socket open, whose frames are not judged.",
			    "Drop the capability NET_RAW and restart the workload."},
    [WEAK_FOREIGN_SOCKET] =
	{"foreign_socket", PARTIAL,
	 "It holds a network socket that was made in another cgroup, and the kernel judges it as that one's.",
	 "Put a policy on the cgroup where the socket was made, or restart the workload."},
    [WEAK_UNSEEN_SOCKET] =
	{"unseen_socket", PARTIAL,
	 "It can send through something that is neither IPv4 nor IPv6, or its sockets could not be looked at.",
	 "Start the workload without it: with the profile that `weir policy export --format oci-seccomp` "
	 "writes, and without the device."},
    [WEAK_HOST_NETWORK] = {"host_network", PARTIAL,
			   "It is in the host's network namespace: the host's own listeners, on loopback and on abstract Unix "
			   "sockets, are its neighbours, and what they send for it is not judged here.",
			   "Start it with a network of its own (hostNetwork: false, no --network host)."},
    [WEAK_ROOT] =
	{"root", PARTIAL,
	 "It is a process of the host itself with rights like root's: it could take the policy off again, or leave its cgroup.",
	 "Run it as a user of its own, without capabilities (in a unit: User=, CapabilityBoundingSet=)."},
    [WEAK_PRIVILEGED] =
	{"privileged", FORCEABLE,
	 "It is a container with the means to take the policy off again, or to leave the cgroup that the policy is on.",
	 "Start it unprivileged: no SYS_ADMIN or the like, no cgroup tree of the host's to write to; or a user "
	 "namespace."},
    [WEAK_REWRITE] =
	{"rewrite", PARTIAL,
	 "A program that is not Weir's may change the destination of a connection after it was judged; the packets "
	 "are judged by where they really go, but refused late and without an error.",
	 "Write the policy for the addresses behind those services too, or switch off the other program's "
	 "translation on this host (in Cilium: socketLB.hostNamespaceOnly)."},
    [WEAK_OUTSIDE] = {"outside", PARTIAL, "Processes of the same container or pod are in cgroups that this policy is not on.",
		      "Attach to the whole with --container or --pod."},
    [WEAK_UNPROVEN] = {"unproven", PARTIAL, "No process could be started inside to try whether the policy holds there.",
		       "See why; then attach once more. What the kernel says of its programs was checked."},
    [WEAK_UNREADABLE] = {"unreadable", PARTIAL,
			 "Its processes could not all be looked at, so that more may be amiss than is said.",
			 "Run Weir as root in the host's pid namespace (hostPID: true), with CAP_SYS_PTRACE."},
    [WEAK_EMPTY] = {"empty", PARTIAL, "Nothing ran there yet, so that its privileges could not be looked at.",
		    "Attach once more when it runs, to have them looked at."},
    [WEAK_GVISOR] =
	{"gvisor", REFUSED,
	 "gVisor has a network stack of its own, whose frames are not judged by what the kernel does with sockets.",
	 "Use a runtime that shares the host's kernel (runc, crun), or gVisor's and the cluster's own network policy."},
    [WEAK_KATA] = {"kata", REFUSED,
		   "It runs in a virtual machine, and its connections are made by another kernel than this one.",
		   "Use a runtime that shares the host's kernel (runc, crun), or run Weir inside of the machine."},
};

void coverage_add(struct coverage_found *f, enum weakness w, const char *fmt, ...)
{
	va_list ap;

	if (!(f->weak & 1u << w)) {
		va_start(ap, fmt);
		vsnprintf(f->detail[w], sizeof f->detail[w], fmt, ap);
		va_end(ap);
	}
	f->weak |= 1u << w;
}

enum coverage coverage_grade(const struct coverage_found *f, bool force)
{
	enum coverage worst = COVERAGE_FULL;

	for (int w = 0; w < WEAKNESSES; w++) {
		const struct weakness_row *row = &weakness_rows[w];
		enum coverage grade = row->grade == COVERAGE_REFUSED && row->forceable && force ? COVERAGE_PARTIAL : row->grade;

		if ((f->weak & 1u << w) && grade > worst)
			worst = grade;
	}
	return worst;
}
