/* choice.h - an option with a fixed set of values: an enum and the names of its values, from one
 * list.
 *
 * A list has one X(VALUE, "name") a line, in the order of the enum:
 *
 *     #define DL_RETAINS(X) X(DL_RETAIN_RECENT, "recent") X(DL_RETAIN_ALL, "all")
 *
 * DL_CHOICE(dl_retain_choice, DL_RETAINS) declares the enum and dl_retain_choice_names, which
 * ends with NULL; DL_CHOICE_NAMES with the same arguments defines the names. */
#ifndef DL_BASE_CHOICE_H
#define DL_BASE_CHOICE_H

#include <stddef.h>

#define DL_CHOICE_VALUE(value, name) value,
#define DL_CHOICE_NAME(value, name)  name,

#define DL_CHOICE(type, list)                                                                      \
    typedef enum type { list(DL_CHOICE_VALUE) } type;                                              \
    _Static_assert(sizeof(type) == sizeof(int),                                                    \
                   "option.c reads and writes each choice as an int");                             \
    extern const char *const type##_names[];

#define DL_CHOICE_NAMES(type, list) const char *const type##_names[] = {list(DL_CHOICE_NAME) NULL};

#endif
