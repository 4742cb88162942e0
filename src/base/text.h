/* text.h - numbers, UTF-8 and sentences in text, the same under every locale.
 *
 * A number is what RFC 8259 calls one: -1, 0.5, 4e-4; not 01, .5, +1, inf, 0x1. */
#ifndef DL_BASE_TEXT_H
#define DL_BASE_TEXT_H

#include "base/size.h"

enum { DL_NUMBER_MAX = 63 }; /* longest number that is read */

/* Bytes of the number that s begins with; 0 when it begins with none. */
size_t dl_number_len(const char *s, size_t n);

/* Read all n bytes of s as a number. Returns false, and leaves *out alone, if they are
 * not one or longer than DL_NUMBER_MAX. So it does if the type cannot hold it (a fraction or an
 * exponent in an integer; beyond the largest double). */
bool dl_text_to_i64(int64_t *out, const char *s, size_t n);
bool dl_text_to_u64(uint64_t *out, const char *s, size_t n);
bool dl_text_to_f64(double *out, const char *s, size_t n);
/* The same for a number that a person wrote: the zero before the point may be left out (.5, -.5).
 */
bool dl_text_to_real(double *out, const char *s, size_t n);

/* A finite number with 9 digits, or with 17 when those 9 do not read back to equal bits. */
void dl_text_from_f64(char out[32], double value);

/* Decodes the %XX escapes of a URL in place; a plus is a space if plus_is_space. Returns false if
 * an escape is invalid: "%00", or a '%' without two hex digits. An invalid escape stays as it is.
 */
bool dl_text_unescape(char *text, bool plus_is_space);

/* dl_text_clause removes blanks, line breaks and full stops from the end of `text`, and returns
 * `text`. It is for the words of another program, which become part of a sentence of ours. */
char *dl_text_clause(char *text);

/* Bytes of the UTF-8 character that s begins with (RFC 3629: shortest form, no
 * surrogates), and which one it is; 0 when it begins with none. */
size_t dl_utf8_char(uint32_t *code, const char *s, size_t n);
/* Write a character; its bytes, 1 to 4. */
size_t dl_utf8_put(char out[4], uint32_t code);

#endif
