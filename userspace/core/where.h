/* SPDX-License-Identifier: Apache-2.0 */
/* Which destinations somebody asks for, as people type it. Pure. */
#ifndef WEIR_CORE_WHERE_H
#define WEIR_CORE_WHERE_H

#define WHERE_TAKES                                                                                                            \
	"an address or a DNS name, or the beginning of one with * at its end (\"10.1.*\"), or the end of one with * before "   \
	"it "                                                                                                                  \
	"(\"*.example.com\"); prefixes (10.0.0.0/8) and * elsewhere are not supported"

/*
 * NULL when a search knows what it means; else a literal that says what is wrong with it. Anything else would find nothing, and
 * look as if nobody had tried.
 */
const char *where_problem(const char *text);

#endif
