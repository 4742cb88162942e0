/* units.c - three digits are enough for a person; a count is exact.
 *
 * Every function writes into the caller's text and keeps no state, so any thread may call it.
 * Values that are negative, infinite or NAN have a text, too, because they come from records. */
#include "cli/display/units.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Three digits: "9.7 MB", "34.1k", "120 GB". The borders are those at which the printed number
 * would round up. Negative numbers and NAN are 0. */
static const char *scaled(dl_unit_text out, double value, const char *space, const char *unit)
{
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P"};
    size_t i = 0;
    if (!(value >= 0)) value = 0;
    for (; value >= 999.5 && i + 1 < sizeof prefixes / sizeof *prefixes; i++)
        value /= 1000;
    int digits = i == 0 || value >= 99.95 ? 0 : 1;
    snprintf(out, sizeof(dl_unit_text), "%.*f%s%s%s", digits, value, space, prefixes[i], unit);
    return out;
}

/* Prefixes are decimal, as networks and providers count: 1 kB is 1000 bytes. */
const char *dl_bytes_text(dl_unit_text out, double bytes)
{
    return scaled(out, bytes, " ", "B");
}

/* Without a unit: the caller adds "tok/s", "bit/s" or none. */
const char *dl_rate_text(dl_unit_text out, double per_second)
{
    return scaled(out, per_second, "", "");
}

/* A comma for each three digits, from the right. */
const char *dl_count_text(dl_unit_text out, uint64_t n)
{
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%" PRIu64, n);
    char *to = out;
    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0) *to++ = ',';
        *to++ = digits[i];
    }
    *to = '\0';
    return out;
}

/* The unit is chosen by the rounded value, so "60 s" is never printed for "1 min 00 s". */
const char *dl_time_text(dl_unit_text out, double seconds)
{
    if (!(seconds >= 0) || isinf(seconds)) return strcpy(out, "-");
    if (seconds < 0.0995)
        snprintf(out, sizeof(dl_unit_text), "%.0f ms", seconds * 1000);
    else if (seconds < 9.95)
        snprintf(out, sizeof(dl_unit_text), "%.1f s", seconds);
    else if (seconds < 59.5)
        snprintf(out, sizeof(dl_unit_text), "%.0f s", seconds);
    else if (seconds < 3599.5)
        snprintf(out, sizeof(dl_unit_text), "%.0f min %02.0f s", floor((seconds + 0.5) / 60),
                 floor(fmod(seconds + 0.5, 60)));
    else if (seconds >= 48 * 3600)
        snprintf(out, sizeof(dl_unit_text), "%.0f days %.0f h", floor((seconds + 1800) / 86400),
                 floor(fmod(seconds + 1800, 86400) / 3600));
    else
        snprintf(out, sizeof(dl_unit_text), "%.0f h %02.0f min", floor((seconds + 30) / 3600),
                 floor(fmod(seconds + 30, 3600) / 60));
    return out;
}

/* Returns the ending of an English plural, for "%s%s" with a noun. */
const char *dl_plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

/* Write a word for a shell. A word that begins with '~' or '#' is special only there; quoting it
 * anywhere is harmless. */
const char *dl_shell_word(char *out, size_t cap, const char *text)
{
    const bool plain = *text && !strpbrk(text, " \t\r\n\"'\\$`*?[]{}()<>|&;#~!^");
    size_t used = (size_t)snprintf(out, cap, "%s", plain ? text : "'");
    for (; !plain && *text && used < cap; text++)
        used += (size_t)snprintf(out + used, cap - used, *text == '\'' ? "'\\''" : "%c", *text);
    if (!plain && used < cap) snprintf(out + used, cap - used, "'");
    return out;
}
