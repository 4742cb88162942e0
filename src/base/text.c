/* text.c - strtod and snprintf follow the locale that the host program chose, so both
 * are called under "C" (which newlocale hands out without allocating, for all
 * categories at once). */
#include "base/text.h"

#include "base/status.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool digit_at(const char *s, size_t n, size_t i)
{
    return i < n && s[i] >= '0' && s[i] <= '9';
}

static size_t skip_digits(const char *s, size_t n, size_t i)
{
    while (digit_at(s, n, i))
        i++;
    return i;
}

/* The grammar is JSON's: no leading zeros, no plus sign, digits on both sides of a point. Returns 0
 * if no number begins there. */
size_t dl_number_len(const char *s, size_t n)
{
    size_t i = n > 0 && s[0] == '-';
    if (!digit_at(s, n, i)) return 0;
    i = s[i] == '0' ? i + 1 : skip_digits(s, n, i);
    if (i < n && s[i] == '.') {
        if (!digit_at(s, n, i + 1)) return 0;
        i = skip_digits(s, n, i + 1);
    }
    if (i < n && (s[i] == 'e' || s[i] == 'E')) {
        size_t sign = i + 1 < n && (s[i + 1] == '-' || s[i + 1] == '+');
        if (!digit_at(s, n, i + 1 + sign)) return 0;
        i = skip_digits(s, n, i + 1 + sign);
    }
    return i;
}

/* The n bytes as a C string, if all of them are a number that is not too long. */
static bool whole_number(char out[DL_NUMBER_MAX + 1], const char *s, size_t n)
{
    if (n == 0 || n > DL_NUMBER_MAX || dl_number_len(s, n) != n) return false;
    memcpy(out, s, n);
    out[n] = 0;
    return true;
}

/* The whole text has to be digits: "1.0" and "1e3" are refused, since strtoll stops before them. */
bool dl_text_to_i64(int64_t *out, const char *s, size_t n)
{
    char text[DL_NUMBER_MAX + 1], *end;
    if (!whole_number(text, s, n)) return false;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || *end) return false;
    *out = value;
    return true;
}

/* strtoull would accept a minus sign and wrap, so it is refused first. */
bool dl_text_to_u64(uint64_t *out, const char *s, size_t n)
{
    char text[DL_NUMBER_MAX + 1], *end;
    if (!whole_number(text, s, n) || text[0] == '-') return false;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || *end) return false;
    *out = value;
    return true;
}

/* "C" for all categories at once is a static object of the C library, so nothing is allocated or
 * has to be freed. */
static locale_t c_locale(void)
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    DL_ASSERT(c);
    return c;
}

/* Returns false for a number that is too large for a double. */
bool dl_text_to_f64(double *out, const char *s, size_t n)
{
    char text[DL_NUMBER_MAX + 1];
    if (!whole_number(text, s, n)) return false;
    double value = strtod_l(text, NULL, c_locale());
    if (!isfinite(value)) return false; /* underflow is the nearest double, as it should be */
    *out = value;
    return true;
}

/* Allows ".5" in addition, which people write and JSON does not have. */
bool dl_text_to_real(double *out, const char *s, size_t n)
{
    char whole[DL_NUMBER_MAX + 1];
    const size_t sign = n > 0 && s[0] == '-';
    if (n <= sign || s[sign] != '.') return dl_text_to_f64(out, s, n);
    if (n + 1 > DL_NUMBER_MAX) return false;
    const int len =
        snprintf(whole, sizeof whole, "%s0%.*s", sign ? "-" : "", (int)(n - sign), s + sign);
    return dl_text_to_f64(out, whole, (size_t)len);
}

/* Nine digits suffice for every value that was a float; other doubles get 17, which read back
 * exactly. */
void dl_text_from_f64(char out[32], double value)
{
    DL_ASSERT(isfinite(value));
    locale_t before = uselocale(c_locale());
    snprintf(out, 32, "%.9g", value);
    if (strtod(out, NULL) != value) snprintf(out, 32, "%.17g", value);
    uselocale(before);
}

/* Refuses overlong forms, surrogates and values above 0x10FFFF, so each character has one
 * encoding. */
size_t dl_utf8_char(uint32_t *code, const char *s, size_t n)
{
    const unsigned char *b = (const unsigned char *)s;
    if (n == 0) return 0;
    if (b[0] < 0x80) {
        *code = b[0];
        return 1;
    }
    size_t len = b[0] >= 0xF0 ? 4 : b[0] >= 0xE0 ? 3 : 2;
    uint32_t least = len == 4 ? 0x10000 : len == 3 ? 0x800 : 0x80;
    uint32_t value = b[0] & (0x7Fu >> len);
    if (b[0] < 0xC0 || b[0] > 0xF4 || n < len) return 0;
    for (size_t i = 1; i < len; i++) {
        if ((b[i] & 0xC0) != 0x80) return 0;
        value = value << 6 | (b[i] & 0x3F);
    }
    if (value < least || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return 0;
    *code = value;
    return len;
}

/* Returns the number of bytes. `code` is a valid character. */
size_t dl_utf8_put(char out[4], uint32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t len = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    unsigned marks = len == 2 ? 0xC0 : len == 3 ? 0xE0 : 0xF0;
    for (size_t i = len; i-- > 1; code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)(marks | code);
    return len;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'                 ? c - '0'
           : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                : -1;
}

/* "%00" is invalid because it would end the text. */
bool dl_text_unescape(char *text, bool plus_is_space)
{
    char *out = text;
    bool valid = true;
    for (; *text; out++) {
        const int high = *text == '%' ? hex_digit(text[1]) : -1;
        const int low = high >= 0 ? hex_digit(text[2]) : -1;
        const bool escaped = low >= 0 && (high || low);
        valid = valid && (escaped || *text != '%');
        *out = escaped ? (char)(high << 4 | low) : plus_is_space && *text == '+' ? ' ' : *text;
        text += escaped ? 3 : 1;
    }
    *out = '\0';
    return valid;
}

char *dl_text_clause(char *text)
{
    size_t len = strlen(text);
    while (len && strchr(" \t\r\n.", text[len - 1]))
        text[--len] = '\0';
    return text;
}
