/* cmd_log.c - the entries of a log, a line each; or what one of them moved, a line a tensor; or
 * what they cost to move (log_traffic.c).
 *
 * diloco_log_walk reads the entries in order and gives each to a callback, so the memory does not
 * grow with the log. The kinds of answer exclude each other, and cmd_log picks one. Lines of the
 * records (--events) are printed as replicas wrote them. */
#include "cli/display/log_traffic.h"
#include "cli/display/units.h"
#include "cli/settings/settings.h"
#include "cli/swarm.h"
#include <diloco/inspect.h>

#include <inttypes.h>
#include <math.h>

/* Print the generations that the entry counts, with commas between them. */
static void print_members(const diloco_log_entry *e)
{
    for (size_t i = 0; i < e->n_members; i++)
        printf("%s%s", i ? "," : "", e->members[i]);
}

/* One line for an entry. The reason of an abort is another machine's text, so it is made
 * printable. */
static diloco_status print_line(void *user, const diloco_log_entry *e)
{
    dl_unit_text bytes;
    (void)user;
    printf("%6" PRIu64 "  %-6s  ", e->entry, e->commit ? "commit" : "abort");
    if (e->commit) {
        char loss[32] = "no loss"; /* a trainer need not report one */
        if (!isnan(e->loss)) snprintf(loss, sizeof loss, "loss %-8.4f", e->loss);
        printf("%-13s %9s  %.16s  ", loss, dl_bytes_text(bytes, (double)e->bytes), e->result);
    } else {
        char reason[128];
        dl_printable(reason, sizeof reason, e->reason ? e->reason : "");
        printf("%s%s", reason, e->n_members ? "; contributors: " : "");
    }
    print_members(e);
    for (size_t i = 0; i < e->n_rejected; i++)
        printf("%s%s (%s)", i ? ", " : "  rejected: ", e->rejected[i], e->rejected_for[i]);
    if (e->committer[0]) /* an entry that cannot be read has none */
        printf("  by %s%s", e->committer, e->combined_by[0] ? ", which combined" : "");
    putchar('\n');
    return DILOCO_OK;
}

/* Add an array of names; an empty one is written as well, so a program finds the member. */
static void add_names(dl_json *json, const char *key, const char *const *names, size_t n)
{
    dl_json_array(json, key);
    for (size_t i = 0; i < n; i++)
        dl_json_str(json, NULL, names[i]);
    dl_json_end(json);
}

/* One object a line, so a program can read an endless log line by line. */
static diloco_status print_json(void *user, const diloco_log_entry *e)
{
    dl_buf out;
    dl_json json;
    (void)user;
    dl_buf_init(&out, 8 << 20);
    dl_json_init(&json, &out);
    dl_json_object(&json, NULL);
    dl_json_u64(&json, "entry", e->entry);
    dl_json_str(&json, "kind", e->commit ? "commit" : "abort");
    dl_json_u64(&json, "fragment", e->fragment);
    dl_json_u64(&json, "position", e->position);
    dl_json_str(&json, "committer", e->committer);
    if (!e->commit) dl_json_str(&json, "reason", e->reason);
    add_names(&json, "members", e->members, e->n_members);
    dl_json_array(&json, "weights");
    for (size_t i = 0; e->weights && i < e->n_members; i++)
        dl_json_f64(&json, NULL, (double)e->weights[i]);
    dl_json_end(&json);
    add_names(&json, "roster", e->roster, e->n_roster);
    if (e->n_rejected) add_names(&json, "rejected", e->rejected, e->n_rejected);
    if (e->n_rejected) add_names(&json, "rejected_for", e->rejected_for, e->n_rejected);
    dl_json_f64(&json, "loss", e->loss);
    dl_json_u64(&json, "bytes", e->bytes);
    if (e->simulated_s > 0) dl_json_f64(&json, "simulated_s", e->simulated_s);
    if (e->combined_by[0]) {
        dl_json_str(&json, "combined_by", e->combined_by);
        dl_json_u64(&json, "combined_bytes", e->combined_bytes);
    }
    dl_json_str(&json, "base", e->base);
    dl_json_str(&json, "result", e->result);
    dl_json_str(&json, "prev", e->prev);
    dl_json_end(&json);
    return dl_print_json(&json, &out);
}

/* ---- --moved ------------------------------------------------------------------------------ */

/* Print one tensor: its number of values, the norm of the change, and the largest absolute
 * change. */
static void print_movement(void *user, const diloco_movement *m)
{
    (void)user;
    printf("%-40s %12zu  norm %-12.6g largest %.6g\n", m->tensor, m->count, m->norm, m->largest);
}

/* Add one tensor as an object of the array "tensors". A callback cannot fail; the JSON writer keeps
 * the first error, and dl_json_done reports it. */
static void add_movement(void *user, const diloco_movement *m)
{
    dl_json *json = user;
    dl_json_object(json, NULL);
    dl_json_str(json, "tensor", m->tensor);
    dl_json_u64(json, "count", m->count);
    dl_json_f64(json, "norm", m->norm);
    dl_json_f64(json, "largest", m->largest);
    dl_json_end(json);
}

/* Print one object for the entry. Nothing is printed after an error, since half an object is no
 * JSON. */
static diloco_status print_moved_json(const char *store, uint64_t entry)
{
    dl_buf out;
    dl_json json;
    dl_buf_init(&out, 64 << 20);
    dl_json_init(&json, &out);
    dl_json_object(&json, NULL);
    dl_json_u64(&json, "entry", entry);
    dl_json_array(&json, "tensors");
    const diloco_status status = diloco_movement_walk(store, entry, add_movement, &json);
    dl_json_end(&json);
    dl_json_end(&json);
    if (!status) return dl_print_json(&json, &out);
    dl_buf_deinit(&out);
    return status;
}

/* The entry is replayed from the newest snapshot before it, so its contributions have to be
 * kept. */
static diloco_status print_moved(const dl_args *args, const char *store)
{
    uint64_t entry;
    DL_TRY(dl_args_u64(&entry, args, DL_FLAG_MOVED, 0, INT64_MAX));
    if (dl_args_has(args, DL_FLAG_JSON)) return print_moved_json(store, entry);
    return diloco_movement_walk(store, entry, print_movement, NULL);
}

/* ---- the entries ----------------------------------------------------------------------------- */

/* The printer of an entry, and the number of entries printed so far. */
typedef struct shown {
    diloco_log_entry_fn print;
    uint64_t n;
} shown;

/* Count the entry, then print it. The count shows later whether the answer was empty. */
static diloco_status show(void *user, const diloco_log_entry *e)
{
    shown *s = user;
    s->n++;
    return s->print(NULL, e);
}

/* The entries to show: from `from` on. `end` is the log's length if it was searched for, else 0. */
typedef struct range {
    uint64_t from, end;
} range;

/* A walk ends at a lost entry as at the log's end, so the error of a gap follows the entries before
 * it. With --last no gap is looked for after the end, since the listing of a folder takes time that
 * grows with the log. An empty result is explained on stderr, because stdout is for the entries. */
static diloco_status print_entries(const char *store, range asked, bool json)
{
    shown s = {.print = json ? print_json : print_line};
    const uint64_t from = asked.from;
    uint64_t n;
    DL_TRY(diloco_log_walk(store, from, show, &s));
    if (asked.end == 0 || from + s.n < asked.end) DL_TRY(diloco_log_check_gap(store, from + s.n));
    if (s.n > 0) return DILOCO_OK;
    DL_TRY(diloco_log_length(&n, store));
    fprintf(stderr,
            "diloco: the log has %" PRIu64 " entr%s, counted from 0: none from %" PRIu64 "\n", n,
            n == 1 ? "y" : "ies", from);
    return DILOCO_OK;
}

/* Write the first entry to show: that of --from, or the first of the newest N by --last. */
static diloco_status find_range(range *out, const dl_args *args, const char *store)
{
    uint64_t last;
    *out = (range){.from = 0};
    DL_TRY(dl_args_u64(&out->from, args, DL_FLAG_FROM, 0, INT64_MAX));
    if (!dl_args_has(args, DL_FLAG_LAST)) return DILOCO_OK;
    DL_TRY(dl_args_u64(&last, args, DL_FLAG_LAST, 0, INT64_MAX));
    DL_TRY(diloco_log_length(&out->end, store));
    out->from = out->end > last ? out->end - last : 0;
    return DILOCO_OK;
}

/* ---- --events ----------------------------------------------------------------------------- */

/* Print a line of a record as it is: it is one JSON object already. */
static diloco_status print_event(void *user, const char *line, size_t len)
{
    (void)user;
    dl_print_foreign(line, len);
    putchar('\n');
    return DILOCO_OK;
}

/* Return true if at most one of the flags is given that replace the list of entries. */
static bool is_one_answer(const dl_args *args)
{
    return dl_args_has(args, DL_FLAG_MOVED) + dl_args_has(args, DL_FLAG_TRAFFIC) +
               dl_args_has(args, DL_FLAG_EVENTS) <=
           1;
}

/* Refuse contradictions between flags. */
static diloco_status check_flags(const dl_args *args)
{
    const bool from = dl_args_has(args, DL_FLAG_FROM), last = dl_args_has(args, DL_FLAG_LAST);
    const char *first = from ? "--from" : "--last"; /* where one of them is given */
    uint64_t n;
    if (!is_one_answer(args))
        return dl_fail(DILOCO_EINVAL,
                       "--moved, --traffic and --events are several answers; ask for one");
    if (from && last)
        return dl_fail(DILOCO_EINVAL, "--from and --last both say which entry is first; give one");
    if ((from || last) && dl_args_has(args, DL_FLAG_EVENTS))
        return dl_fail(DILOCO_EINVAL, "%s counts entries, and --events has all lines", first);
    if ((from || last) && dl_args_has(args, DL_FLAG_MOVED))
        return dl_fail(DILOCO_EINVAL, "%s has no effect: --moved names the one entry to show",
                       first);
    if (dl_args_has(args, DL_FLAG_COST) && !dl_args_has(args, DL_FLAG_TRAFFIC))
        return dl_fail(DILOCO_EINVAL, "--cost goes with --traffic");
    DL_TRY(dl_args_u64(&n, args, DL_FLAG_LAST, 1, INT64_MAX));
    return n > 0 ? DILOCO_OK : dl_fail(DILOCO_EINVAL, "--last 0 shows no entry; give at least 1");
}

/* Contradictions between flags are found before the store is read. */
static diloco_status cmd_log(const dl_args *args)
{
    dl_config_path store;
    range asked;
    DL_TRY(check_flags(args));
    DL_TRY(dl_settings_store(store, args->target));
    DL_TRY(dl_swarm_refuse(store, "show"));
    if (dl_args_has(args, DL_FLAG_EVENTS)) return diloco_record_walk(store, print_event, NULL);
    if (dl_args_has(args, DL_FLAG_MOVED)) return print_moved(args, store);
    DL_TRY(find_range(&asked, args, store));
    if (dl_args_has(args, DL_FLAG_TRAFFIC)) return dl_log_traffic(args, store, asked.from);
    return print_entries(store, asked, dl_args_has(args, DL_FLAG_JSON));
}

const dl_command dl_command_log = {
    .name = "log",
    .target = "URL",
    .summary = "list the entries of a run's log: members, loss, bytes, digests",
    .details = "With --traffic, of each commit: bytes and requests of all replicas together, bytes "
               "a second\n"
               "and, with --cost, their price; then all bytes of the run by kind. With --events "
               "everything\n"
               "that the replicas have recorded, a line of JSON each. Replicas leave their records "
               "in the\n"
               "store every 30 s.\n"
               "With --last only the newest entries are read, and with --from none before E: their "
               "time does\n"
               "not grow with the log. --traffic reads all records in any case.\n"
               "  diloco log runs/demo --last 20\n"
               "  diloco log runs/demo --traffic --cost prices.toml",
    .flags = DL_FLAGS(DL_FLAG_JSON, DL_FLAG_FROM, DL_FLAG_LAST, DL_FLAG_MOVED, DL_FLAG_TRAFFIC,
                      DL_FLAG_EVENTS, DL_FLAG_COST),
    .run = cmd_log,
};
