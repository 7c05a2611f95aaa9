/* SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"

#include <string.h>

const struct plan_step_info plan_steps[STEP_COUNT] = {[STEP_NONE] = {"NONE", "none", "-", "nothing"},
#define STEP(id, layer, actor, what) [STEP_##id] = {#id, layer, #actor, what},
						      PLAN_STEPS(STEP)
#undef STEP
};

enum plan_step plan_step_by_name(const char *name)
{
	for (int i = STEP_NONE + 1; i < STEP_COUNT; i++)
		if (!strcmp(plan_steps[i].name, name))
			return (enum plan_step)i;
	return STEP_NONE;
}
