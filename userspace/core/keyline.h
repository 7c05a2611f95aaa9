/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of "key<separator>value", as the kernel prints them. Pure. */
#ifndef WEIR_CORE_KEYLINE_H
#define WEIR_CORE_KEYLINE_H

/* What stands behind `key` and the separator on the first line that starts with both; NULL when no line does. Borrowed. */
const char *keyline_find(const char *text, const char *key, char separator);

#endif
