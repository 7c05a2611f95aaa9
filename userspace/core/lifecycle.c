/* SPDX-License-Identifier: Apache-2.0 */
#include "core/lifecycle.h"

const char *const box_state_names[BOX_STATES] = {"building", "warm", "claimed", "running", "ending", "gone"};
const char *const box_event_names[BOX_EVENTS] = {"ready", "failed", "claim", "start", "main-exit", "kill", "empty"};

/* An empty cell would be {BUILDING, NOTHING}; so that none is forgotten, each is written, and a test walks them all. */
static const struct box_transition table[BOX_STATES][BOX_EVENTS] =
    {
	[BOX_BUILDING] =
	    {
		[BOX_READY] = {BOX_WARM, BOX_DO_OFFER},
		[BOX_FAILED] = {BOX_ENDING, BOX_DO_KILL},
		[BOX_CLAIM] = {BOX_ENDING, BOX_DO_REFUSE},
		[BOX_START] = {BOX_ENDING, BOX_DO_REFUSE},
		[BOX_MAIN_EXIT] = {BOX_ENDING, BOX_DO_KILL},
		[BOX_KILL] = {BOX_ENDING, BOX_DO_KILL},
		[BOX_EMPTY] = {BOX_GONE, BOX_DO_FINISH},
	    },
	[BOX_WARM] =
	    {
		[BOX_READY] = {BOX_ENDING, BOX_DO_REFUSE},
		[BOX_FAILED] = {BOX_ENDING, BOX_DO_KILL},
		[BOX_CLAIM] = {BOX_CLAIMED, BOX_DO_GRANT},
		[BOX_START] = {BOX_ENDING, BOX_DO_REFUSE},
		[BOX_MAIN_EXIT] = {BOX_ENDING, BOX_DO_KILL},
		[BOX_KILL] = {BOX_ENDING, BOX_DO_KILL},
		[BOX_EMPTY] = {BOX_GONE, BOX_DO_FINISH},
	    },
	[BOX_CLAIMED] =
	    {
		[BOX_READY] = {BOX_ENDING, BOX_DO_REFUSE},
		[BOX_FAILED] = {BOX_ENDING, BOX_DO_KILL},
		[BOX_CLAIM] = {BOX_ENDING, BOX_DO_REFUSE},
		[BOX_START] = {BOX_RUNNING, BOX_DO_OPEN_GATE},
		[BOX_MAIN_EXIT] = {BOX_ENDING, BOX_DO_KILL},
		[BOX_KILL] = {BOX_ENDING, BOX_DO_KILL},
		[BOX_EMPTY] = {BOX_GONE, BOX_DO_FINISH},
	    },
	[BOX_RUNNING] =
	    {
		[BOX_READY] = {BOX_ENDING, BOX_DO_REFUSE},
		[BOX_FAILED] = {BOX_ENDING, BOX_DO_KILL},
		[BOX_CLAIM] = {BOX_ENDING, BOX_DO_REFUSE},
		[BOX_START] = {BOX_ENDING, BOX_DO_REFUSE},
		[BOX_MAIN_EXIT] = {BOX_ENDING, BOX_DO_KILL},
		[BOX_KILL] = {BOX_ENDING, BOX_DO_KILL},
		[BOX_EMPTY] = {BOX_GONE, BOX_DO_FINISH},
	    },
	/* Whatever arrives while the kill is under way is too late to matter. */
	[BOX_ENDING] =
	    {
		[BOX_READY] = {BOX_ENDING, BOX_DO_NOTHING},
		[BOX_FAILED] = {BOX_ENDING, BOX_DO_NOTHING},
		[BOX_CLAIM] = {BOX_ENDING, BOX_DO_NOTHING},
		[BOX_START] = {BOX_ENDING, BOX_DO_NOTHING},
		[BOX_MAIN_EXIT] = {BOX_ENDING, BOX_DO_NOTHING},
		[BOX_KILL] = {BOX_ENDING, BOX_DO_NOTHING},
		[BOX_EMPTY] = {BOX_GONE, BOX_DO_FINISH},
	    },
	[BOX_GONE] =
	    {
		[BOX_READY] = {BOX_GONE, BOX_DO_NOTHING},
		[BOX_FAILED] = {BOX_GONE, BOX_DO_NOTHING},
		[BOX_CLAIM] = {BOX_GONE, BOX_DO_NOTHING},
		[BOX_START] = {BOX_GONE, BOX_DO_NOTHING},
		[BOX_MAIN_EXIT] = {BOX_GONE, BOX_DO_NOTHING},
		[BOX_KILL] = {BOX_GONE, BOX_DO_NOTHING},
		[BOX_EMPTY] = {BOX_GONE, BOX_DO_NOTHING},
	    },
};

struct box_transition box_next(enum box_state state, enum box_event event)
{
	return table[state][event];
}
