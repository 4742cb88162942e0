/* fields.h - common members of the JSON objects of a run (docs/formats.md).
 *
 * Each is one object that begins with "format" and "version" and ends with its *seal*:
 *
 *     {"format":"diloco-entry","version":1, … ,"check":"<hash>"}\n
 *
 * where the hash is dl_hash_bytes of everything before the comma in front of "check". A
 * reader looks at nothing else before the seal fits. So a flipped bit is found in any member, also
 * in one that only a later version knows. */
#ifndef DL_LOG_FIELDS_H
#define DL_LOG_FIELDS_H

#include "base/json.h"
#include "log/layout.h"

enum { DL_SEAL = 45 }; /* bytes from the comma in front of "check" to the end */

/* Open the object and write its format and version; *start is where it begins in out. */
void dl_sealed_begin(dl_json *j, size_t *start, dl_buf *out, const char *format);
/* Seals and closes it. After an error, also an earlier one, `out` is unchanged. */
DL_MUST_CHECK diloco_status dl_sealed_end(dl_json *j, size_t start);

/* Opens the object in an untrusted text. Returns DILOCO_EPROTO if it is truncated, damaged or of
 * another format, and DILOCO_EDIFFERS if it has another version, which the text names. Allocates
 * nothing. */
DL_MUST_CHECK diloco_status dl_sealed_open(dl_json_value *out, const void *text, size_t len,
                                           const char *format);

void dl_json_hash(dl_json *j, const char *key, dl_hash hash);
void dl_json_generation(dl_json *j, const char *key, const dl_generation *generation);

/* As dl_json_read_*; DILOCO_EPROTO names the key. */
DL_MUST_CHECK diloco_status dl_json_read_hash(dl_hash *out, dl_json_value object, const char *key);
DL_MUST_CHECK diloco_status dl_json_read_generation(dl_generation *out, dl_json_value object,
                                                    const char *key);
/* A run's id: 32 lower-case hex digits. */
DL_MUST_CHECK diloco_status dl_json_read_run(char out[DL_HASH_HEX + 1], dl_json_value object);
/* Reads null as NaN, as dl_json_f64 writes it. */
DL_MUST_CHECK diloco_status dl_json_read_f64_or_nan(double *out, dl_json_value object,
                                                    const char *key);
/* The value must be finite. */
DL_MUST_CHECK diloco_status dl_json_read_finite_bits(float *out, dl_json_value object,
                                                     const char *key);
DL_MUST_CHECK diloco_status dl_json_read_u32(uint32_t *out, dl_json_value object, const char *key,
                                             uint32_t max);

/* Returns whether it is 32 lower-case hex digits and nothing else. */
bool dl_run_id_ok(const char *id);

#endif
