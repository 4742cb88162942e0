/* status.h - the result of a call, and the text of a failure.
 *
 * Every function that can fail returns a diloco_status. diloco_error_text() returns the
 * sentence of a failure to the thread on which the call failed. It names the failure, the object,
 * the reason and the way out.
 *
 * Structs may grow at their end in a later version. So a function
 * that takes or fills a struct of the caller's is DILOCO_SIZED: inline, and compiled into the
 * caller. It passes the struct's size to the library's function of the same name with _sized.
 * Another language calls that one. If the caller's struct is smaller than the library's, its
 * missing members are 0, which is every member's default, and are not filled. If it is larger, the
 * members that the library does not know must be 0 (DILOCO_EINVAL), and are filled with 0. Structs
 * that point on to others and are kept (loop.h) carry their size in their first member `size`
 * instead; the rule is the same. */
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
    DILOCO_EINVAL,       /* an invalid value, option or call; exit code 2 */
    DILOCO_EREFUSED,     /* a combination that is refused or not supported; exit code 3 */
    DILOCO_EUNREACHABLE, /* the store or a peer cannot be reached; 4 */
    DILOCO_EINTERRUPTED, /* stopped on request, can be resumed; 130 */
    DILOCO_ENOMEM,       /* no memory */
    DILOCO_EIO,          /* the operating system refused a read or a write */
    DILOCO_EFULL,        /* the disk or the store is full */
    DILOCO_ENOENT,       /* no such object, file or name, or not yet */
    DILOCO_EEXIST,       /* the name is taken, by other bytes */
    DILOCO_EPROTO,       /* bytes from outside are truncated, damaged or foreign */
    DILOCO_ENUMERIC,     /* a value is NaN or infinite */
    DILOCO_ETIMEDOUT,    /* the time given has passed */
    DILOCO_ECLOSED,      /* the handle was closed or aborted */
    DILOCO_EFENCED,      /* a later generation of this replica has taken over: stop */
    DILOCO_EDIFFERS,     /* the store holds another run, model or program version */
    DILOCO_N_STATUS
} diloco_status;

/* diloco_error_text returns the sentence of this thread's last failed call, "" before any. It is
 * valid until the thread's next call into the library. */
DILOCO_API const char *diloco_error_text(void);

/* diloco_status_name returns one lower-case word for a status: "invalid", "refused", … */
DILOCO_API const char *diloco_status_name(diloco_status status);

/* diloco_exit_code returns the exit code for a program that ends with this status: 0, 1, 2, 3, 4 or
 * 130. */
DILOCO_API int diloco_exit_code(diloco_status status);

#ifdef __cplusplus
}
#endif
#endif
