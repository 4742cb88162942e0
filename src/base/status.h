/* status.h - wording a failure where it is found, and stopping on a bug. */
#ifndef DL_BASE_STATUS_H
#define DL_BASE_STATUS_H

#include <diloco/status.h>

#define DL_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define DL_MUST_CHECK        DILOCO_MUST_CHECK

/* Set this thread's error text and return `status`, so that a failing function
 * ends with `return dl_fail(DILOCO_EIO, "open %s: %s", path, strerror(errno))`.
 * The text is cut at 2047 bytes. Not for DILOCO_OK. */
diloco_status dl_fail(diloco_status status, const char *format, ...) DL_PRINTF(2, 3);

/* Put "<context>: " before the error text, for a caller that knows the object's
 * name better than the callee. Returns `status` unchanged. */
diloco_status dl_fail_context(diloco_status status, const char *format, ...) DL_PRINTF(2, 3);

#define DL_TRY(call)                                                                               \
    do {                                                                                           \
        diloco_status dl_try_ = (call);                                                            \
        if (dl_try_) return dl_try_;                                                               \
    } while (0)

/* A broken precondition or invariant is a bug: say where and abort, in release too. */
#define DL_ASSERT(condition)                                                                       \
    do {                                                                                           \
        if (__builtin_expect(!(condition), 0)) dl_assert_failed(#condition, __FILE__, __LINE__);   \
    } while (0)
_Noreturn void dl_assert_failed(const char *condition, const char *file, int line);

#endif
