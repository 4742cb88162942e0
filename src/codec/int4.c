/* int4.c - blocks of 256 with a scale and codes -7 … 7; integers.h says how. */
enum { BITS = 4 };

#include "codec/integers.h"

DL_BLOCKS_CODEC(int4, "4 bits an element, evenly spaced, and a scale for each 256")
