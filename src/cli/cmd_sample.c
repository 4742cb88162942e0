/* cmd_sample.c - text from a run's model, as it comes.
 *
 * diloco_sample reads the newest shared model and the run's tokenizer, and gives each piece of text
 * to a callback. The prompt is printed first, so the output is one continuous text. */
#include "cli/settings/settings.h"
#include <diloco/train.h>

#include <string.h>
#include <unistd.h>

/* The most tokens of one call, so a mistyped number ends as an error and not as hours of text. */
enum { TOKENS_MAX = 1 << 24 };

/* Print text as it comes. A byte model may write anything, so what goes to a terminal cannot
 * steer it. A pipe gets the bytes as they are. */
static void on_text(void *user, const char *text, size_t len)
{
    const bool *terminal = user;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        bool control = (c < ' ' && c != '\n' && c != '\t') || c == 127;
        putchar(*terminal && control ? '?' : c);
    }
    fflush(stdout);
}

/* All flags are read before the run is, so a mistake is reported at once. */
static diloco_status cmd_sample(const dl_args *args)
{
    dl_config config;
    uint64_t n_tokens, seed, top_k;
    double temperature, top_p;
    bool terminal = isatty(STDOUT_FILENO);
    const char *prompt = dl_args_has(args, DL_FLAG_PROMPT) ? args->flags[DL_FLAG_PROMPT] : "";
    DL_TRY(dl_args_u64(&n_tokens, args, DL_FLAG_TOKENS, 200, TOKENS_MAX));
    DL_TRY(dl_args_u64(&seed, args, DL_FLAG_SAMPLE_SEED, 1, UINT64_MAX));
    DL_TRY(dl_args_f64(&temperature, args, DL_FLAG_TEMPERATURE, 0.8, 100));
    DL_TRY(dl_args_u64(&top_k, args, DL_FLAG_TOP_K, 0, UINT64_MAX));
    DL_TRY(dl_args_f64(&top_p, args, DL_FLAG_TOP_P, 0, 1));
    DL_TRY(dl_settings_of_run(&config, args));

    const diloco_sample_args sample = {.prompt = prompt,
                                       .n_tokens = n_tokens,
                                       .temperature = temperature,
                                       .seed = seed,
                                       .top_k = top_k,
                                       .top_p = top_p};
    on_text(&terminal, prompt, strlen(prompt));
    diloco_status status = diloco_sample(&config, &sample, on_text, &terminal);
    putchar('\n');
    return status;
}

const dl_command dl_command_sample = {
    .name = "sample",
    .target = "URL",
    .summary = "text from a run's model",
    .flags = DL_FLAGS(DL_FLAG_PROMPT, DL_FLAG_TOKENS, DL_FLAG_TEMPERATURE, DL_FLAG_TOP_K,
                      DL_FLAG_TOP_P, DL_FLAG_SAMPLE_SEED, DL_FLAG_SET),
    .sets = DL_SETS_MACHINE,
    .run = cmd_sample,
};
