/* widths.h - values in two bytes and in four: those of model files and those that this library
 * computes with; tensors of a trainer that are narrower than the run's state. */
#ifndef DL_TENSOR_WIDTHS_H
#define DL_TENSOR_WIDTHS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns true for the safetensors types that the functions below accept: "F32", "BF16" and "F16".
 * With another type they do nothing. */
bool dl_width_known(const char *dtype);

/* n little-endian values of such a type, aligned to nothing, to f32: exactly. */
void dl_widen(float *to, const unsigned char *from, size_t n, const char *dtype);
/* And back, rounded to nearest, ties to even: results of dl_widen come back to the bit, but for the
 * payload of a NaN. Values beyond the largest become infinite. */
void dl_narrow(unsigned char *to, const float *from, size_t n, const char *dtype);

/* Narrow the values and widen them again; to may be from. */
void dl_round_to(float *to, const float *from, size_t n, const char *dtype);

#endif
