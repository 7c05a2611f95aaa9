/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a sandbox as a table: what happens in which state, and what is then to be done. Nothing else changes a state.
 *
 *   BUILDING -> WARM -> CLAIMED -> RUNNING -> ENDING -> GONE
 *
 * A sandbox is used once: there is no way back. GONE is reached only when the kernel has said that every process is dead.
 */
#ifndef WEIR_CORE_LIFECYCLE_H
#define WEIR_CORE_LIFECYCLE_H

enum box_state { BOX_BUILDING, BOX_WARM, BOX_CLAIMED, BOX_RUNNING, BOX_ENDING, BOX_GONE, BOX_STATES };

enum box_event {
	BOX_READY,     /* every layer is verified, the harness waits at the gate */
	BOX_FAILED,    /* a step failed */
	BOX_CLAIM,     /* a client gets it */
	BOX_START,     /* the client has handed over its code */
	BOX_MAIN_EXIT, /* init says that main is gone */
	BOX_KILL,      /* deadline, limit, cancel, shutdown */
	BOX_EMPTY,     /* init is dead, and with it the whole pid namespace */
	BOX_EVENTS,
};

enum box_action {
	BOX_DO_NOTHING,
	BOX_DO_OFFER,	  /* put it in the pool or hand it to who waits */
	BOX_DO_GRANT,	  /* hand its descriptors to the client */
	BOX_DO_OPEN_GATE, /* arm the deadline, let the code run */
	BOX_DO_KILL,	  /* kill the cgroup */
	BOX_DO_FINISH,	  /* account, report, remove */
	BOX_DO_REFUSE,	  /* an event that cannot happen here: logged, sandbox killed */
};

struct box_transition {
	enum box_state next;
	enum box_action action;
};

struct box_transition box_next(enum box_state state, enum box_event event);

extern const char *const box_state_names[BOX_STATES];
extern const char *const box_event_names[BOX_EVENTS];

#endif
