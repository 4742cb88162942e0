/* sample.c - text, token by token (model/decode.h): the next token's logits, divided by the
 * temperature, and a draw from their softmax, over all tokens or over the likeliest.
 *
 * The draw for token i is number i of the stream (seed, DL_STREAM_SAMPLE), so equal arguments give
 * equal text. The softmax is computed here in float64, since it is a few thousand numbers.
 *
 * A full context drops its first half. The other half is decoded again from position 0, so a token
 * costs at most twice. */
#include "base/rng.h"
#include "base/sized.h"
#include "model/decode.h"
#include "train/setup.h"
#include <diloco/train.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One text in the making. */
typedef struct sampler {
    const dl_setup *setup;
    const diloco_sample_args *args;
    dl_decoder *decoder;
    int32_t *tokens; /* [T]; the context so far */
    size_t n, T, vocab;
    float *logits;
    int32_t *order; /* [vocab]; tokens by their logits, where only some are drawn from */
    dl_rng rng;
} sampler;

static int32_t likeliest(const float *logits, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

/* ---- drawing */

/* Equal logits are ordered by token, so that the order is the same with every qsort_r(). */
static int by_logit(const void *a, const void *b, void *context)
{
    const float *logits = context;
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (logits[x] != logits[y]) return logits[x] > logits[y] ? -1 : 1;
    return x < y ? -1 : 1;
}

/* A token's part of the softmax, without its divisor. `top`, the largest logit, keeps exp() from
 * overflow. */
static double weight_of(const sampler *s, int32_t token, double top)
{
    return exp((s->logits[token] - top) / s->args->temperature);
}

/* Returns how many of the likeliest are drawn from: top_k, and of those as many as reach top_p. */
static size_t likely(sampler *s, double top)
{
    size_t n = s->vocab;
    double sum = 0, reached = 0;
    for (size_t i = 0; i < n; i++)
        s->order[i] = (int32_t)i;
    if (s->args->top_k == 0 && s->args->top_p == 0) return n;
    qsort_r(s->order, n, sizeof *s->order, by_logit, s->logits);
    if (s->args->top_k && s->args->top_k < n) n = (size_t)s->args->top_k;
    if (s->args->top_p == 0) return n;
    for (size_t i = 0; i < n; i++)
        sum += weight_of(s, s->order[i], top);
    size_t k = 0;
    while (k < n && reached < s->args->top_p * sum)
        reached += weight_of(s, s->order[k++], top);
    return dl_size_max(k, 1);
}

/* Draws the next token; with temperature 0 it is the likeliest one. */
static int32_t draw(sampler *s)
{
    int32_t best = likeliest(s->logits, s->vocab);
    double top = s->logits[best], sum = 0;
    if (s->args->temperature == 0) return best;
    size_t n = likely(s, top);
    for (size_t i = 0; i < n; i++)
        sum += weight_of(s, s->order[i], top);
    double left = dl_rng_f64(&s->rng) * sum;
    for (size_t i = 0; i < n; i++) {
        left -= weight_of(s, s->order[i], top);
        if (left < 0) return s->order[i];
    }
    return best; /* rounding lost the last part */
}

/* ---- the context */

/* Adds a token. Only a long prompt finds the context full here: its first tokens are dropped. */
static void append(sampler *s, int32_t token)
{
    if (s->n == s->T) memmove(s->tokens, s->tokens + 1, --s->n * sizeof *s->tokens);
    s->tokens[s->n++] = token;
}

/* Decodes the tokens after the first dl_decoder_length ones. */
static void take_in(sampler *s)
{
    for (size_t i = dl_decoder_length(s->decoder); i < s->n; i++)
        dl_decoder_step(s->decoder, i + 1 == s->n ? s->logits : NULL, s->tokens[i]);
}

static void forget_half(sampler *s)
{
    size_t kept = s->T / 2;
    memmove(s->tokens, s->tokens + s->n - kept, kept * sizeof *s->tokens);
    s->n = kept;
    dl_decoder_reset(s->decoder);
}

/* Begins with the end of the prompt that fits the context. */
static diloco_status begin(sampler *s, const char *prompt)
{
    size_t len = strlen(prompt);
    int32_t *all = malloc((len + 1) * sizeof *all); /* a token has at least one byte */
    if (!all) return dl_fail(DILOCO_ENOMEM, "out of memory for a prompt of %zu bytes", len);
    size_t n;
    diloco_status status = dl_data_encode(s->setup->data, all, &n, prompt, len);
    for (size_t i = 0; i < n; i++)
        append(s, all[i]);
    free(all);
    if (n || status) return status;
    return dl_fail(DILOCO_EINVAL, "the prompt gives no token: name one that tokenizer %s can read",
                   s->setup->config.tokenizer);
}

/* A model may have fewer tokens than its tokenizer, and a larger one would index past its
 * embedding. */
static diloco_status check_tokens(const sampler *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->tokens[i] < 0 || (size_t)s->tokens[i] >= s->vocab)
            return dl_fail(DILOCO_EINVAL, "the prompt has token %d, and the model %zu of them",
                           s->tokens[i], s->vocab);
    return DILOCO_OK;
}

/* Writes the text token by token; on_text gets it at once. A token may be a part of a character. */
static diloco_status generate(sampler *s, void (*on_text)(void *user, const char *text, size_t len),
                              void *user)
{
    const char *prompt = s->args->prompt;
    DL_TRY(begin(s, prompt && *prompt ? prompt : "\n"));
    DL_TRY(check_tokens(s));
    for (size_t i = 0; i < s->args->n_tokens; i++) {
        char room[16];
        size_t len;
        take_in(s);
        int32_t token = draw(s);
        const char *text = dl_data_token_text(s->setup->data, &len, room, token);
        on_text(user, text, len);
        if (s->n == s->T) forget_half(s);
        append(s, token);
    }
    return DILOCO_OK;
}

static diloco_status check_args(const diloco_sample_args *args)
{
    if (!(args->temperature >= 0) || isinf(args->temperature))
        return dl_fail(DILOCO_EINVAL, "temperature %g: give 0 for the likeliest token, or more",
                       args->temperature);
    if (!(args->top_p >= 0 && args->top_p <= 1))
        return dl_fail(DILOCO_EINVAL, "top-p %g: a probability, or 0 for all tokens", args->top_p);
    return DILOCO_OK;
}

static diloco_status open_sampler(sampler *s)
{
    s->T = (size_t)s->setup->config.context;
    s->vocab = s->setup->sample->classes;
    s->tokens = malloc(s->T * sizeof *s->tokens);
    s->logits = malloc(s->vocab * sizeof *s->logits);
    s->order = malloc(s->vocab * sizeof *s->order);
    if (!s->tokens || !s->logits || !s->order)
        return dl_fail(DILOCO_ENOMEM, "not enough memory to sample from %zu tokens", s->vocab);
    dl_rng_init(&s->rng, s->args->seed, DL_STREAM(DL_STREAM_SAMPLE, 0), 0);
    DL_TRY(dl_staging_pull(&s->setup->staged_parameters));
    return dl_decoder_create(&s->decoder, s->setup->tensors, s->setup->n_tensors, &s->setup->config,
                             s->setup->pool);
}

diloco_status diloco_sample_sized(const diloco_config *config, const diloco_sample_args *given,
                                  size_t size,
                                  void (*on_text)(void *user, const char *text, size_t len),
                                  void *user)
{
    dl_setup setup;
    uint64_t entry;
    diloco_sample_args args;
    DL_TRY(dl_sized_in(&args, sizeof args, given, size, "diloco_sample_args"));
    DL_TRY(check_args(&args));
    DL_TRY(dl_setup_open_run(&setup, &entry, config, 0, 1));
    if (setup.sample->kind != DL_TOKENS) {
        dl_setup_close(&setup);
        return dl_fail(DILOCO_EINVAL, "the run's model takes images: there is no text to sample");
    }
    sampler s = {.setup = &setup, .args = &args};
    diloco_status status = open_sampler(&s);
    if (!status) status = generate(&s, on_text, user);
    dl_decoder_destroy(s.decoder);
    free(s.tokens);
    free(s.logits);
    free(s.order);
    dl_setup_close(&setup);
    return status;
}
