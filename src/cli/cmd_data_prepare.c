/* cmd_data_prepare.c - text into token shards, with progress.
 *
 * diloco_data_prepare encodes the texts on all cores. Shards that an earlier call has completed are
 * kept, so the same command resumes after a kill. The progress goes to stderr. */
#include "base/clock.h"
#include "cli/cli.h"
#include "cli/display/units.h"
#include <diloco/train.h>

#include <unistd.h>

/* When the progress was last drawn; it is drawn only on a terminal. */
typedef struct progress {
    dl_time begin, last;
    bool shown;
} progress;

/* Draw at most five times a second, and at the end. `total` is known from the start: the size of
 * the texts. */
static void on_progress(void *user, uint64_t done, uint64_t total)
{
    progress *p = user;
    dl_unit_text bytes, rate, left;
    dl_time now = dl_clock_now();
    double seconds = dl_seconds(now - p->begin), per_s = (double)done / (seconds + 1e-9);
    if (!p->shown || done == 0 || (dl_seconds(now - p->last) < 0.2 && done < total)) return;
    p->last = now;
    fprintf(stderr, "\r%3.0f %% of %s, %s/s, %s left   ", 100 * (double)done / (double)total,
            dl_bytes_text(bytes, (double)total), dl_bytes_text(rate, per_s),
            dl_time_text(left, (double)(total - done) / per_s));
    if (done == total) fputc('\n', stderr);
}

/* Print one object. `found` counts the shards that an earlier call has left complete. */
static diloco_status print_json(const diloco_prepare_report *r, const char *path, double seconds)
{
    dl_buf out;
    dl_json json;
    dl_buf_init(&out, 1 << 20);
    dl_json_init(&json, &out);
    dl_json_object(&json, NULL);
    dl_json_str(&json, "path", path);
    dl_json_u64(&json, "bytes", r->bytes);
    dl_json_u64(&json, "tokens", r->tokens);
    dl_json_u64(&json, "shards", r->shards);
    dl_json_u64(&json, "found", r->found);
    dl_json_u64(&json, "vocab", r->vocab);
    dl_json_f64(&json, "seconds", seconds);
    dl_json_end(&json);
    return dl_print_json(&json, &out);
}

/* The printed flags name the folder and the tokenizer, since a run needs both to read the
 * tokens. */
static diloco_status cmd_data_prepare(const dl_args *args)
{
    diloco_prepare_report r;
    dl_unit_text bytes, tokens;
    const char *text = args->flags[DL_FLAG_TEXT], *path = args->flags[DL_FLAG_TO_PATH],
               *tokenizer = args->flags[DL_FLAG_TOKENIZER];
    progress p = {.begin = dl_clock_now()};
    p.shown = isatty(STDERR_FILENO) && !dl_args_has(args, DL_FLAG_QUIET);
    if (!text || !path || !tokenizer)
        return dl_fail(DILOCO_EINVAL,
                       "data prepare needs --text LIST, --tokenizer FILE and --out DIR");
    DL_TRY(diloco_data_prepare(&r, text, tokenizer, path, 0, on_progress, &p));
    double seconds = dl_seconds(dl_clock_now() - p.begin);
    if (dl_args_has(args, DL_FLAG_JSON)) return print_json(&r, path, seconds);
    printf("%s of text, %s tokens in %llu shard%s of %s%s\n", dl_bytes_text(bytes, (double)r.bytes),
           dl_count_text(tokens, r.tokens), (unsigned long long)r.shards, dl_plural(r.shards), path,
           r.found == r.shards ? ": all existed already" : "");
    printf("train on it: --set data.datasource=tokens --set data.train_path=%s \\\n"
           "    --set data.tokenizer=bpe --set data.tokenizer_path=%s\n",
           path, tokenizer);
    return DILOCO_OK;
}

const dl_command dl_command_data_prepare = {
    .name = "data prepare",
    .summary = "encode text into a folder of token shards, on all cores",
    .details =
        "The folder is for data.datasource = tokens. After a kill, the same command resumes.\n"
        "  diloco data prepare --text books/ --tokenizer tokenizer.json --out tokens",
    .flags =
        DL_FLAGS(DL_FLAG_TEXT, DL_FLAG_TOKENIZER, DL_FLAG_TO_PATH, DL_FLAG_JSON, DL_FLAG_QUIET),
    .run = cmd_data_prepare,
};
