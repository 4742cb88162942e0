/* chunks.h - "aws-chunked": framing that some S3 clients put inside a body, to send a checksum
 * after it ("Signature calculations: transferring payload in multiple chunks" of the S3 API
 * reference):
 *
 *     <hex length>[;<extension>]\r\n<bytes>\r\n … 0[;<extension>]\r\n[<trailer>\r\n …]\r\n
 *
 * Read in pieces as they arrive; allocates nothing. Extensions (signatures) are skipped. One
 * trailer (a checksum) is kept; a second one is refused. */
#ifndef DL_HUB_CHUNKS_H
#define DL_HUB_CHUNKS_H

#include "base/size.h"
#include "base/status.h"

enum { DL_CHUNKS_LINE = 512 };

/* The part of the body that the next byte belongs to. */
typedef enum dl_chunks_state {
    DL_CHUNKS_SIZE, /* in a line with a length */
    DL_CHUNKS_DATA,
    DL_CHUNKS_DATA_END, /* in the line end after data */
    DL_CHUNKS_TRAILER,  /* in a line after the last chunk */
    DL_CHUNKS_OVER
} dl_chunks_state;

typedef struct dl_chunks { /* zeroed at first */
    dl_chunks_state state;
    uint64_t left; /* of the chunk */
    char line[DL_CHUNKS_LINE];
    size_t line_len;              /* of the line so far */
    char trailer[DL_CHUNKS_LINE]; /* "name:value"; "": none came */
} dl_chunks;

typedef diloco_status (*dl_chunks_fn)(void *context, const void *data, size_t len);

/* Hand what is inside to `take`; its error is returned. DILOCO_EPROTO: not that framing. */
DL_MUST_CHECK diloco_status dl_chunks_add(dl_chunks *chunks, const char *data, size_t len,
                                          dl_chunks_fn take, void *context);
/* Nothing more comes. DILOCO_EPROTO: it ended early. */
DL_MUST_CHECK diloco_status dl_chunks_end(const dl_chunks *chunks);

#endif
