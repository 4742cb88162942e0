/* int2.c - blocks of 256 with a scale and codes -1 … 1; integers.h says how. Only what is above
 * half of the largest of its block is sent: without error feedback it loses most of the rest. */
enum { BITS = 2 };

#include "codec/integers.h"

DL_BLOCKS_CODEC(int2, "2 bits an element, -s, 0 or s, and a scale for each 256")
