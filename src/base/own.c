/* own.c - see own.h. */
#include "base/own.h"

#include <string.h>

/* The characters are those of a component of a key, since names reach objects. */
static bool is_good(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

/* The mark keeps names of callers apart from those of the library's own rows, now and in later
 * versions. */
diloco_status dl_own_name(dl_config_name out, const char *what, const char *name)
{
    const size_t mark = strlen(DL_OWN_MARK), most = DL_OPTION_NAME_MAX - mark;
    const size_t len = name ? strnlen(name, most + 1) : 0;
    bool good = len > 0 && len <= most;
    for (size_t i = 0; i < len; i++)
        good &= is_good(name[i]);
    if (!good)
        return dl_fail(DILOCO_EINVAL,
                       "%s of the caller's: \"%.40s\" is not a valid name; take 1 to %zu "
                       "letters, digits and ._-",
                       what, name ? name : "", most);
    memcpy(out, DL_OWN_MARK, mark);
    memcpy(out + mark, name, len + 1);
    return DILOCO_OK;
}

/* A run of another program may name a part that only that program has. The text says so, since the
 * name alone looks like a mistake. */
diloco_status dl_no_row(const char *what, const char *name)
{
    if (strncmp(name, DL_OWN_MARK, strlen(DL_OWN_MARK)) != 0)
        return dl_fail(DILOCO_EINVAL, "there is no %s \"%s\"", what, name);
    return dl_fail(DILOCO_EREFUSED,
                   "%s %s is supplied by a program, and only that program has it "
                   "(diloco_run_open_with): take part, or replay, with that program",
                   what, name);
}
