/* rows.h - one row a codec: its own file defines it, codec.c lists it. */
#ifndef DL_CODEC_ROWS_H
#define DL_CODEC_ROWS_H

#include "codec/codec.h"

extern const dl_codec dl_codec_f32;

#endif
