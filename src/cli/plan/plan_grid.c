/* plan_grid.c - `diloco plan --grid`: the links of published tables, from their models.
 *
 * src/plan/published.h has the rules of both models. Model and step time have to be given. The
 * answer is a link in Gbit/s for each target of compute utilisation (docs/planner.md). */
#include "base/text.h"
#include "cli/plan/plan_pages.h"
#include "plan/published.h"

#include <string.h>

/* Targets in one call. */
enum { MAX_TARGETS = 64 };

/* One row of a published table: a setting, and the link for each target. */
typedef struct row {
    dl_published p;
    size_t n;                                      /* targets */
    double target[MAX_TARGETS], gbit[MAX_TARGETS]; /* utilisation in (0, 1); link */
    bool beyond[MAX_TARGETS];                      /* even the largest link does not reach it */
} row;

/* ---- the question */

/* Find a name in a short list; the error lists all of them. */
static diloco_status pick(int *out, const char *flag, const char *name, const char *const *names,
                          int n)
{
    char known[128] = "";
    for (*out = 0; *out < n; ++*out) {
        if (strcmp(names[*out], name) == 0) return DILOCO_OK;
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", *out ? ", " : "", names[*out]);
    }
    return dl_fail(DILOCO_EINVAL, "%s \"%.60s\" is unknown; there is: %s", flag, name, known);
}

/* Read "0.5,0.8,0.95". */
static diloco_status read_targets(row *r, const char *text)
{
    for (r->n = 0; r->n < MAX_TARGETS; r->n++) {
        size_t len = strcspn(text, ",");
        double u;
        if (!dl_text_to_real(&u, text, len) || !(u > 0 && u < 1))
            return dl_fail(DILOCO_EINVAL,
                           "--utilization \"%.*s\" is not between 0 and 1; write 0.5,0.8,0.95",
                           (int)dl_size_min(len, 40), text);
        r->target[r->n] = u;
        /* The last target of the list. */
        if (!text[len]) {
            r->n++;
            return DILOCO_OK;
        }
        text += len + 1;
    }
    return dl_fail(DILOCO_EINVAL, "--utilization takes at most %d values", MAX_TARGETS);
}

/* A published model needs all its numbers, as no default would be the paper's. */
static diloco_status needed(double *out, const dl_args *args, dl_flag flag)
{
    if (!dl_args_has(args, flag))
        return dl_fail(DILOCO_EINVAL, "--grid needs %s %s", dl_flag_rows[flag].name,
                       dl_flag_rows[flag].value);
    return dl_args_f64(out, args, flag, 0, 1e18);
}

/* Enumerators have the order of the names. */
static diloco_status read_names(dl_published *p, const dl_args *args)
{
    static const char *const grids[] = {"published", "calculator"};
    static const char *const methods[] = {"data_parallel", "diloco", "streaming"};
    int at;
    DL_TRY(pick(&at, "--grid", args->flags[DL_FLAG_GRID], grids, 2));
    p->rules = (dl_published_rules)at;
    if (!dl_args_has(args, DL_FLAG_METHOD))
        return dl_fail(DILOCO_EINVAL, "--grid needs --method data_parallel, diloco or streaming");
    DL_TRY(pick(&at, "--method", args->flags[DL_FLAG_METHOD], methods, 3));
    p->method = (dl_published_method)at;
    return DILOCO_OK;
}

/* fragment_layers is bounded by the layers before it is checked. */
static diloco_status read_question(row *r, const dl_args *args)
{
    dl_published *p = &r->p;
    double layers;
    uint64_t tau;
    const char *targets = args->flags[DL_FLAG_UTILIZATION];
    DL_TRY(read_names(p, args));
    DL_TRY(needed(&p->parameters, args, DL_FLAG_PARAMS));
    DL_TRY(needed(&layers, args, DL_FLAG_LAYERS));
    /* These three are required; counts are then read as whole numbers. */
    DL_TRY(needed(&p->step_s, args, DL_FLAG_STEP_SECONDS));
    DL_TRY(dl_plan_count(&p->layers, args, DL_FLAG_LAYERS, 1, DL_PLAN_MAX_LAYERS));
    DL_TRY(dl_plan_count(&p->fragment_layers, args, DL_FLAG_FRAGMENT_LAYERS,
                         p->layers < 3 ? p->layers : 3, DL_PLAN_MAX_LAYERS));
    DL_TRY(dl_plan_count(&p->sync_every, args, DL_FLAG_SYNC_EVERY, 100, DL_PLAN_MAX_SYNC));
    DL_TRY(dl_plan_count(&p->replicas, args, DL_FLAG_PLAN_REPLICAS, 2, 65536));
    DL_TRY(dl_args_f64(&p->bits, args, DL_FLAG_BITS, 16, 64));
    DL_TRY(dl_args_u64(&tau, args, DL_FLAG_TAU, 0, DL_PLAN_MAX_SYNC));
    p->tau = (uint32_t)tau;
    /* Data-parallel training exchanges after every step by definition. */
    if (p->method == DL_PUBLISHED_DATA_PARALLEL) p->sync_every = 1;
    /* The targets of the papers' tables. */
    DL_TRY(read_targets(r, targets ? targets : "0.5,0.8,0.9,0.95,0.99"));
    return dl_published_check(p);
}

/* ---- the answer */

/* The two kinds of rules answer different questions, so the text says which one. */
static const char *rules_text(const dl_published *p)
{
    return p->rules == DL_RULES_PAPER
               ? "2501.18512 and 2503.09799: the last of 50 grid points still below the target"
               : "mino98/diloco-calculator: 128 buckets, the smallest link that reaches the target";
}

/* Print one object: first the arrays of the table, then the setting that they are of. */
static diloco_status print_json(const row *r, const char *method)
{
    dl_buf out;
    dl_json json;
    dl_buf_init(&out, 1 << 20);
    dl_json_init(&json, &out);
    dl_json_object(&json, NULL);
    dl_json_array(&json, "gbit");
    for (size_t i = 0; i < r->n; i++)
        dl_json_f64(&json, NULL, r->gbit[i]);
    dl_json_end(&json);
    dl_json_array(&json, "utilization");
    for (size_t i = 0; i < r->n; i++)
        dl_json_f64(&json, NULL, r->target[i]);
    dl_json_end(&json);
    dl_json_array(&json, "beyond"); /* no link of the grid reaches it */
    for (size_t i = 0; i < r->n; i++)
        dl_json_bool(&json, NULL, r->beyond[i]);
    dl_json_end(&json);
    dl_json_str(&json, "rules", rules_text(&r->p));
    dl_json_str(&json, "method", method);
    dl_json_f64(&json, "params", r->p.parameters);
    dl_json_u64(&json, "layers", r->p.layers);
    dl_json_f64(&json, "step_seconds", r->p.step_s);
    dl_json_u64(&json, "sync_every", r->p.sync_every);
    dl_json_u64(&json, "fragments", dl_published_fragments(&r->p));
    dl_json_u64(&json, "tau", r->p.tau);
    dl_json_f64(&json, "bits", r->p.bits);
    dl_json_u64(&json, "replicas", r->p.replicas);
    dl_json_end(&json);
    return dl_print_json(&json, &out);
}

/* Print one line for each target, below the setting that all of them have. */
static void print_lines(const row *r, const char *method)
{
    printf("%s every %u step%s, tau %u, %g bits, by the rules of\n%s\n\n", method, r->p.sync_every,
           r->p.sync_every == 1 ? "" : "s", r->p.tau, r->p.bits, rules_text(&r->p));
    puts("  compute utilisation     Gbit/s");
    for (size_t i = 0; i < r->n; i++)
        printf("  %17.4g %% %10.4g%s\n", 100 * r->target[i], r->gbit[i],
               r->beyond[i] ? "  the grid's fastest link, still too slow" : "");
}

/* `beyond` is true where no link of the grid reaches the target. */
diloco_status dl_plan_grid(const dl_args *args)
{
    static row r;
    const char *method = args->flags[DL_FLAG_METHOD];
    DL_TRY(read_question(&r, args));
    for (size_t i = 0; i < r.n; i++)
        r.gbit[i] = dl_published_link(&r.beyond[i], &r.p, r.target[i]);
    if (dl_args_has(args, DL_FLAG_JSON)) return print_json(&r, method);
    print_lines(&r, method);
    return DILOCO_OK;
}
