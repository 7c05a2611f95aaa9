/* SPDX-License-Identifier: Apache-2.0 */
/* One line to stderr per call: `weir[component]: level: text`. Main programs and event loops only; core never logs. */
#ifndef WEIR_CORE_LOG_H
#define WEIR_CORE_LOG_H

enum log_level { LOG_LVL_ERROR, LOG_LVL_WARN, LOG_LVL_INFO, LOG_LVL_DEBUG };

/* `component` is borrowed for ever: pass a literal. */
void log_init(const char *component, enum log_level max);
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(LOG_LVL_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_LVL_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_LVL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LVL_DEBUG, __VA_ARGS__)

#endif
