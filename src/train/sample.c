/* sample.c - text, token by token: logits of what there is so far (the last T tokens of it),
 * divided by the temperature, and a draw from their softmax.
 *
 * The draw for token i is number i of the stream (seed, DL_STREAM_SAMPLE), so equal arguments
 * give equal text. The softmax is computed here in float64: it is a few thousand numbers. */
#include "base/rng.h"
#include "train/setup.h"
#include <diloco/train.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct sampler {
    const dl_setup *setup;
    int32_t *tokens; /* [T]; the context so far */
    size_t n, T, vocab;
    float *logits;
    dl_rng rng;
} sampler;

static int32_t likeliest(const float *logits, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

static int32_t draw(sampler *s, double temperature)
{
    double top = s->logits[likeliest(s->logits, s->vocab)], sum = 0;
    for (size_t i = 0; i < s->vocab; i++)
        sum += exp((s->logits[i] - top) / temperature);
    double left = dl_rng_f64(&s->rng) * sum;
    for (size_t i = 0; i < s->vocab; i++) {
        left -= exp((s->logits[i] - top) / temperature);
        if (left < 0) return (int32_t)i;
    }
    return likeliest(s->logits, s->vocab); /* rounding ate the last sliver */
}

static void append(sampler *s, int32_t token)
{
    if (s->n == s->T) memmove(s->tokens, s->tokens + 1, --s->n * sizeof *s->tokens);
    s->tokens[s->n++] = token;
}

/* The end of the prompt that fits the context. */
static diloco_status begin(sampler *s, const char *prompt)
{
    size_t len = strlen(prompt);
    int32_t *all = malloc((len + 1) * sizeof *all); /* a token has at least one byte */
    if (!all) return dl_fail(DILOCO_ENOMEM, "no memory for a prompt of %zu bytes", len);
    size_t n;
    diloco_status status = dl_data_encode(s->setup->data, all, &n, prompt, len);
    for (size_t i = 0; i < n; i++)
        append(s, all[i]);
    free(all);
    if (n || status) return status;
    return dl_fail(DILOCO_EINVAL, "the prompt gives no token: name one that tokenizer %s can read",
                   s->setup->config.tokenizer);
}

static diloco_status generate(sampler *s, const diloco_sample_args *args,
                              void (*on_text)(void *user, const char *text, size_t len), void *user)
{
    DL_TRY(begin(s, args->prompt && *args->prompt ? args->prompt : "\n"));
    for (size_t i = 0; i < args->n_tokens; i++) {
        char room[16];
        size_t len;
        DL_TRY(dl_model_logits(s->setup->model, s->logits, s->tokens, s->n));
        int32_t token =
            args->temperature > 0 ? draw(s, args->temperature) : likeliest(s->logits, s->vocab);
        const char *text = dl_data_token_text(s->setup->data, &len, room, token);
        on_text(user, text, len);
        append(s, token);
    }
    return DILOCO_OK;
}

diloco_status diloco_sample(const diloco_config *config, const diloco_sample_args *args,
                            void (*on_text)(void *user, const char *text, size_t len), void *user)
{
    dl_setup setup;
    uint64_t entry;
    if (!(args->temperature >= 0) || isinf(args->temperature))
        return dl_fail(DILOCO_EINVAL, "temperature %g: give 0 for the likeliest token, or more",
                       args->temperature);
    DL_TRY(dl_setup_open_run(&setup, &entry, config, 0, 1));
    if (setup.sample->kind != DL_TOKENS) {
        dl_setup_close(&setup);
        return dl_fail(DILOCO_EINVAL, "the run's model takes images: there is no text to sample");
    }
    sampler s = {.setup = &setup, .T = (size_t)setup.config.context};
    s.vocab = setup.sample->classes;
    s.tokens = malloc(s.T * sizeof *s.tokens);
    s.logits = malloc(s.vocab * sizeof *s.logits);
    dl_rng_init(&s.rng, args->seed, DL_STREAM(DL_STREAM_SAMPLE, 0), 0);
    diloco_status status =
        s.tokens && s.logits
            ? generate(&s, args, on_text, user)
            : dl_fail(DILOCO_ENOMEM, "no memory to sample from %zu tokens", s.vocab);
    free(s.tokens);
    free(s.logits);
    dl_setup_close(&setup);
    return status;
}
