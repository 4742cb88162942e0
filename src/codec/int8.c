/* int8.c - blocks of 256 with a scale and codes -127 … 127; integers.h says how. */
enum { BITS = 8 };

#include "codec/integers.h"

DL_BLOCKS_CODEC(int8, "1 byte an element, and a scale for each 256")
