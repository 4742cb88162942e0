/* plan_replay.c - `diloco plan --replay`: the record of a finished run on another link.
 *
 * plan/playback.h has the rules. This file finds the record, gives its lines to the playback, and
 * prints the prediction beside the measured time. A record is a file, or is read from the run's
 * store. */
#include "base/file.h"
#include "cli/display/units.h"
#include "cli/plan/plan_pages.h"
#include "cli/settings/settings.h"
#include "plan/playback.h"
#include <diloco/inspect.h>

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

/* The adapter of diloco_record_walk to the playback. */
static diloco_status take_line(void *user, const char *line, size_t len)
{
    return dl_playback_line(user, line, len);
}

/* The file is mapped, as a record may be large. */
static diloco_status read_file(dl_playback *playback, const char *path)
{
    dl_map map;
    DL_TRY(dl_map_open(&map, path));
    diloco_status status = DILOCO_OK;
    const char *at = (const char *)map.data, *end = at + map.len;
    while (!status && at < end) {
        /* The last line may lack its newline; empty lines are skipped. */
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline ? newline : end;
        if (stop > at) status = dl_playback_line(playback, at, (size_t)(stop - at));
        at = newline ? newline + 1 : end;
    }
    dl_map_close(&map);
    return status ? dl_fail_context(status, "%s", path) : DILOCO_OK;
}

/* Read a record. A file is a record, or a CONFIG that names its run; all else is a store. */
static diloco_status read_record(dl_playback *playback, const char *target)
{
    struct stat info;
    dl_config_path store;
    size_t len = strlen(target);
    bool toml = len > 5 && strcmp(target + len - 5, ".toml") == 0;
    if (!toml && stat(target, &info) == 0 && S_ISREG(info.st_mode))
        return read_file(playback, target);
    DL_TRY(dl_settings_store(store, target));
    return diloco_record_walk(store, take_line, playback);
}

/* ---- the answer */

/* Print one object. Times as recorded are absent if the record has no end. */
static diloco_status print_json(const dl_playback_result *r, const dl_plan_link *link)
{
    dl_buf out;
    dl_json json;
    dl_buf_init(&out, 1 << 16);
    dl_json_init(&json, &out);
    dl_json_object(&json, NULL);
    dl_json_f64(&json, "predicted_wall_s", r->predicted_s);
    dl_json_f64(&json, "predicted_utilization", r->predicted_utilization);
    if (r->measured_s > 0) {
        dl_json_f64(&json, "measured_wall_s", r->measured_s);
        dl_json_f64(&json, "measured_utilization", r->measured_utilization);
    }
    dl_json_u64(&json, "replicas", r->replicas);
    dl_json_u64(&json, "absent", r->absent);
    dl_json_u64(&json, "entries", r->entries);
    dl_json_u64(&json, "steps", r->steps);
    dl_json_u64(&json, "tau", r->tau);
    dl_json_f64(&json, "bytes_sent", r->bytes_sent);
    dl_json_f64(&json, "bytes_received", r->bytes_received);
    dl_json_f64(&json, "link_bps", link->up_bps);
    dl_json_f64(&json, "latency_s", link->latency_s);
    dl_json_end(&json);
    return dl_print_json(&json, &out);
}

/* Members without steps in the record are named, since the replay does not wait for them. */
static void print_lines(const dl_playback_result *r, const char *link)
{
    dl_unit_text wall, sent, received, steps;
    printf("replayed: %" PRIu64 " replica%s, %" PRIu64 " entries, %s steps, tau %" PRIu64
           "; %s up, %s down\n",
           r->replicas, dl_plural(r->replicas), r->entries, dl_count_text(steps, r->steps), r->tau,
           dl_bytes_text(sent, r->bytes_sent), dl_bytes_text(received, r->bytes_received));
    if (r->absent)
        printf("note: %" PRIu64 " member%s of the run left no steps in this record; the replay "
               "does not wait for them\n",
               r->absent, dl_plural(r->absent));
    puts("                      wall clock   busy");
    if (r->measured_s > 0)
        printf("  as recorded       %12s %5.1f %%\n", dl_time_text(wall, r->measured_s),
               100 * r->measured_utilization);
    else
        puts("  as recorded               unknown: the record has no end");
    printf("  on %-15s%12s %5.1f %%\n", link, dl_time_text(wall, r->predicted_s),
           100 * r->predicted_utilization);
}

/* The flags are checked before the record is read. */
static diloco_status play(dl_playback *playback, const dl_args *args)
{
    dl_playback_args how = {.tau = -1};
    dl_plan_link recorded;
    dl_playback_result result;
    uint64_t tau;
    if (!dl_args_has(args, DL_FLAG_LINK))
        return dl_fail(DILOCO_EINVAL, "--replay needs the link to replay on: --link 50mbit,100ms");
    DL_TRY(dl_plan_link_parse(&how.link, "--link", args->flags[DL_FLAG_LINK]));
    if (dl_args_has(args, DL_FLAG_RECORDED_LINK)) {
        DL_TRY(
            dl_plan_link_parse(&recorded, "--recorded-link", args->flags[DL_FLAG_RECORDED_LINK]));
        how.recorded = &recorded;
    }
    DL_TRY(dl_args_u64(&tau, args, DL_FLAG_TAU, 0, 1000000));
    /* Without --tau it stays -1: as recorded. */
    if (dl_args_has(args, DL_FLAG_TAU)) how.tau = (int64_t)tau;
    DL_TRY(read_record(playback, args->flags[DL_FLAG_REPLAY]));
    DL_TRY(dl_playback_predict(&result, playback, &how));
    if (dl_args_has(args, DL_FLAG_JSON)) return print_json(&result, &how.link);
    print_lines(&result, args->flags[DL_FLAG_LINK]);
    return DILOCO_OK;
}

/* The playback holds all moves of the record, and is freed in any case. */
diloco_status dl_plan_replay(const dl_args *args)
{
    dl_playback *playback;
    DL_TRY(dl_playback_create(&playback));
    diloco_status status = play(playback, args);
    dl_playback_destroy(playback);
    return status;
}
