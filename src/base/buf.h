/* buf.h - bytes that grow up to a stated maximum. One thread at a time. */
#ifndef DL_BASE_BUF_H
#define DL_BASE_BUF_H

#include "base/size.h"
#include "base/status.h"

typedef struct dl_buf {
    unsigned char *data; /* owned; NULL while empty and never reserved */
    size_t len, cap;
    size_t max; /* never grows beyond; 0: the buffer was not initialised */
} dl_buf;

void dl_buf_init(dl_buf *buf, size_t max); /* allocates nothing */
void dl_buf_deinit(dl_buf *buf);           /* zeroed is fine */
static inline void dl_buf_clear(dl_buf *buf)
{
    buf->len = 0;
} /* keeps the memory */

/* Make room for n bytes in all. DILOCO_ENOMEM; DILOCO_EPROTO beyond max. */
DL_MUST_CHECK diloco_status dl_buf_reserve(dl_buf *buf, size_t n);

/* Append; on error the buffer is as it was. */
DL_MUST_CHECK diloco_status dl_buf_add(dl_buf *buf, const void *data, size_t n);
DL_MUST_CHECK diloco_status dl_buf_addf(dl_buf *buf, const char *format, ...) DL_PRINTF(2, 3);

/* The content as a C string (a zero byte follows it, not counted in len). NULL
 * when that byte cannot be had. */
const char *dl_buf_str(dl_buf *buf);

#endif
