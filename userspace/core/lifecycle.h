/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a sandbox as a table: what happens in which state, and what is then to be done. Nothing else changes a state.
 *
 *   BUILDING -> WARM -> CLAIMED -> RUNNING -> ENDING -> GONE
 *          \-> LOADING -^
 *
 *                  -> IDLE -> PLACING -> STARTING -> CELL -> FREEZING -> PAUSED
 *                      ^                              \-> INTERRUPTED -/   |
 *                      |---------------------------------------------------/
 *
 * A sandbox is used once: there is no way back. LOADING is a tool's: its modules are imported, which runs code of its author's
 * before anybody has called it. A session goes round, cell by cell, and leaves the circle for ENDING alone; all
 * of it is frozen from STARTING to CELL, where one record ends and the next begins, and while it is PAUSED. GONE is reached
 * only when the kernel has said that every process is dead.
 */
#ifndef WEIR_CORE_LIFECYCLE_H
#define WEIR_CORE_LIFECYCLE_H

enum box_state {
	BOX_BUILDING,
	BOX_LOADING, /* a tool's: verified, and importing its modules */
	BOX_WARM,
	BOX_CLAIMED,
	BOX_RUNNING,
	BOX_IDLE,	 /* a session between two cells; what earlier cells left running in it goes on */
	BOX_PLACING,	 /* a cell is to start when the harness has it */
	BOX_STARTING,	 /* .. and everything is frozen */
	BOX_CELL,	 /* a cell runs */
	BOX_INTERRUPTED, /* .. and has been asked to stop */
	BOX_FREEZING,	 /* it is over: everything is being frozen */
	BOX_PAUSED,	 /* frozen, its files are being read */
	BOX_ENDING,
	BOX_GONE,
	BOX_STATES
};

enum box_event {
	BOX_READY,     /* every layer is verified, the harness waits at the gate */
	BOX_LOAD,      /* .. a tool's, and has modules to import */
	BOX_LOADED,    /* they are imported, or can't be */
	BOX_FAILED,    /* a step failed */
	BOX_CLAIM,     /* a client gets it */
	BOX_OPEN,      /* .. as a session */
	BOX_START,     /* the client has handed over its code */
	BOX_PLACED,    /* the harness has the cell, and waits at the gate */
	BOX_REFUSED,   /* .. or could not place a file of it */
	BOX_FROZEN,    /* the kernel says that nothing in it moves */
	BOX_INTERRUPT, /* deadline, limit or cancel of a cell */
	BOX_DONE,      /* the harness says that the cell is over */
	BOX_COLLECTED, /* the cell's files have been read */
	BOX_MAIN_EXIT, /* init says that main is gone */
	BOX_KILL,      /* deadline, limit, cancel, shutdown */
	BOX_EMPTY,     /* init is dead, and with it the whole pid namespace */
	BOX_EVENTS,
};

enum box_action {
	BOX_DO_NOTHING,
	BOX_DO_LOAD,	  /* let it import its modules */
	BOX_DO_OFFER,	  /* put it in the pool or hand it to who waits */
	BOX_DO_GRANT,	  /* hand its descriptors to the client */
	BOX_DO_OPEN,	  /* .. and begin the session's own record */
	BOX_DO_OPEN_GATE, /* arm the deadline, let the code run */
	BOX_DO_AWAIT,	  /* ask the harness for the cell */
	BOX_DO_DECLINE,	  /* tell the client which file it was */
	BOX_DO_FREEZE,	  /* stop everything in it */
	BOX_DO_OPEN_CELL, /* account what was between, then as for OPEN_GATE */
	BOX_DO_INTERRUPT, /* ask main to stop, arm the deadline for that */
	BOX_DO_PAUSE,	  /* account and tell the cell's end, wait for its files to be read */
	BOX_DO_RESUME,	  /* let everything go on */
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
