/* sanitized.h - SANITIZED: is this a sanitizer's build? Then its own memory would be measured, and
 * its own malloc is called. gcc says so by macros, clang by features. */
#ifndef DL_TESTS_SANITIZED_H
#define DL_TESTS_SANITIZED_H

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#endif
