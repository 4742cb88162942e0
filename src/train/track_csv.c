/* track_csv.c - run.track = "csv:FILE": lines "seconds,replica,tag,step,value", appended. */
#include "train/tracker_kinds.h"

#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static void add_number(dl_tracker *t, const char *tag, uint64_t step, double value)
{
    char line[256];
    const int len = snprintf(line, sizeof line, "%.3f,%s,%s,%llu,%.9g\n", dl_clock_wall(),
                             t->replica, tag, (unsigned long long)step, value);
    dl_tracker_make_room(t, sizeof line);
    if (dl_buf_add(&t->out, line, (size_t)len)) dl_tracker_give_up(t, "no memory");
}

/* Replicas of one machine may append to one file: each flush is a write with O_APPEND. */
static diloco_status open_csv(dl_tracker *t, const char *path)
{
    static const char head[] = "seconds,replica,tag,step,value\n";
    struct stat st;
    t->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (t->fd < 0) return dl_fail_errno(errno, "open", path);
    /* If several replicas begin at once, two may write it; every reader treats it as a comment. */
    if (!fstat(t->fd, &st) && st.st_size == 0 && !strcmp(t->replica, "r0"))
        return dl_buf_add(&t->out, head, sizeof head - 1);
    return DILOCO_OK;
}

const dl_tracker_kind dl_tracker_csv = {.name = "csv", .open = open_csv, .number = add_number};
