/* status.h - what a call says when it does not succeed.
 *
 * Every function that can fail returns a diloco_status. The place that detects a
 * failure also words it; diloco_error_text() gives that sentence to the thread on
 * which the call failed: what went wrong, where, and what to do about it.
 *
 * Structs may grow at their end in a later version. So whatever takes or fills a struct of the
 * caller's is a DILOCO_SIZED function, which hands its size as the caller was compiled to a
 * library function of the same name with _sized behind it; who calls from another language calls
 * that one. A struct that is smaller than the library's: what it lacks is 0, which is every
 * member's default, and is not filled. A larger one: what the library does not know has to be 0
 * (DILOCO_EINVAL), and is filled with 0. Structs that point on to others and are kept (loop.h)
 * carry their size in their first member `size` instead; the rule is the same. */
#ifndef DILOCO_STATUS_H
#define DILOCO_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DILOCO_API        __attribute__((visibility("default")))
#define DILOCO_MUST_CHECK __attribute__((warn_unused_result))
#else
#define DILOCO_API
#define DILOCO_MUST_CHECK
#endif
#define DILOCO_SIZED static inline

typedef enum diloco_status {
    DILOCO_OK = 0,
    DILOCO_EINVAL,       /* a value, option or call that is wrong; exit code 2 */
    DILOCO_EREFUSED,     /* a combination that cannot be faithful, or is not supported; 3 */
    DILOCO_EUNREACHABLE, /* the store or a peer cannot be reached; 4 */
    DILOCO_EINTERRUPTED, /* stopped on request, can be resumed; 130 */
    DILOCO_ENOMEM,       /* no memory */
    DILOCO_EIO,          /* the operating system refused a read or a write */
    DILOCO_EFULL,        /* no space left where it was to be written */
    DILOCO_ENOENT,       /* no object, file or name of that kind (yet) */
    DILOCO_EEXIST,       /* the name is taken, by other bytes */
    DILOCO_EPROTO,       /* bytes from outside that are truncated, damaged or foreign */
    DILOCO_ENUMERIC,     /* a NaN or an infinity where none may be */
    DILOCO_ETIMEDOUT,    /* not in the time given */
    DILOCO_ECLOSED,      /* the handle was closed or aborted */
    DILOCO_EFENCED,      /* a later life of this replica has taken over: stop */
    DILOCO_EDIFFERS,     /* the store holds another run, model or program version */
    DILOCO_N_STATUS
} diloco_status;

/* The sentence of this thread's last failed call; "" before any. Valid until the
 * thread's next call into the library. */
DILOCO_API const char *diloco_error_text(void);

/* "invalid", "refused", …: one lower-case word for each status. */
DILOCO_API const char *diloco_status_name(diloco_status status);

/* The exit code a program should end with: 0, 1, 2, 3, 4 or 130. */
DILOCO_API int diloco_exit_code(diloco_status status);

#ifdef __cplusplus
}
#endif
#endif
