/* units.h - numbers for people: "9.7 MB", "34.1k", "1 min 20 s", "1,240"; and text for a shell. */
#ifndef DL_CLI_DISPLAY_UNITS_H
#define DL_CLI_DISPLAY_UNITS_H

#include <stddef.h>
#include <stdint.h>

/* Room for one text of the functions below, which all fit. Two texts in one printf need two of
 * them. */
typedef char dl_unit_text[32];

/* Each writes into out and returns it. */
const char *dl_bytes_text(dl_unit_text out, double bytes);     /* decimal: 1 kB is 1000 */
const char *dl_rate_text(dl_unit_text out, double per_second); /* 950, 34.1k, 2.1M; no unit */
const char *dl_count_text(dl_unit_text out, uint64_t n);       /* thousands separated */
const char *dl_time_text(dl_unit_text out, double seconds);    /* "-" below 0 or not a number */
const char *dl_plural(uint64_t n);                             /* "" for 1, else "s" */

/* Write one word of a command line so that a POSIX shell reads it back as `text`: as it is where
 * nothing in it is special, otherwise in single quotes. Cut at cap; returns out. */
const char *dl_shell_word(char *out, size_t cap, const char *text);

#endif
