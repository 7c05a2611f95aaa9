/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A socket's last descriptor is gone, in whatever process: what the address hook counted is taken off again. Nothing is
 * judged here. The kernel tells nothing of its own sockets; if one was ever counted, that place is lost to its cgroup.
 */
#ifndef WEIR_BPF_HOOK_RELEASE_H
#define WEIR_BPF_HOOK_RELEASE_H

SEC("cgroup/sock_release")
int weir_release(struct bpf_sock *ctx)
{
	struct weir_owner *o = bpf_sk_storage_get(&owners, ctx, NULL, 0);
	struct weir_sandbox *sb;

	if (!o || !o->counted)
		return 1;
	if (o->counted == WEIR_EPOCH_STRANGER) {
		sb = account_of_strangers();
	} else {
		sb = bpf_map_lookup_elem(&sandboxes, &o->counted_in);
		if (sb && sb->epoch != o->counted)
			return 1; /* the entry it was in is gone */
	}
	if (sb)
		__sync_fetch_and_add(&sb->sockets, -1);
	return 1;
}

#endif
