/* papers_test.c - results that the papers report of their variants, on a small model: fewer bytes,
 * and losses within a bound. Values on the wire may be coarse; the model's are not. */
#include "base/safetensors.h"
#include "train_fixture.h"
#include <diloco/inspect.h>

enum { CREW = 2 };

typedef struct outcome {
    double loss;       /* of the shared model on validation data, at the end */
    double bytes;      /* of a contribution: the largest */
    double reduction;  /* by the record, of the replica with the least */
    dl_config *config; /* freed by the caller */
} outcome;

typedef const char *const settings[][2];

static void look_at(outcome *out, const fixture_record *record, size_t i)
{
    const dl_json_value eval = fixture_event(record, i, "eval");
    const dl_json_value put = fixture_event(record, i, "contribution");
    const dl_json_value end = fixture_event(record, i, "end");
    if (eval.type == DL_JSON_OBJECT) out->loss = fixture_number(eval, "loss"); /* the last counts */
    if (put.type == DL_JSON_OBJECT) out->bytes = fmax(out->bytes, fixture_number(put, "bytes"));
    if (end.type == DL_JSON_OBJECT)
        out->reduction = fmin(out->reduction, fixture_number(end, "reduction"));
}

static outcome train_with(const char *preset, const char *const (*set_to)[2])
{
    fixture_record records[CREW] = {{0}};
    outcome out = {.reduction = INFINITY, .config = fixture_config(preset)};
    set(out.config, "run.replicas", "2");
    set(out.config, "trainer.rounds", "10");
    set(out.config, "trainer.eval_every", "0"); /* at the end alone, by one of the two */
    set(out.config, "parameters.optimizer.lr", "1e-2");
    for (; set_to && (*set_to)[0]; set_to++)
        set(out.config, (*set_to)[0], (*set_to)[1]);
    fixture_train(out.config, records, CREW);
    for (size_t r = 0; r < CREW; r++) {
        for (size_t i = 0; i < records[r].n; i++)
            look_at(&out, &records[r], i);
        fixture_record_free(&records[r]);
    }
    return out;
}

TEST(alg_13_pruning_a_half_halves_the_payload_and_leaves_the_loss_within_1_percent)
{
    static settings pruned = {
        {"server.diloco.codec", "prune"}, {"server.diloco.codec_prune", "0.5"}, {NULL, NULL}};
    const outcome whole = train_with("diloco", NULL), half = train_with("diloco", pruned);
    CHECK(whole.loss < 0.8 * log(256)); /* it has trained */
    if (!(half.loss < 1.01 * whole.loss)) CHECK_FAIL("losses %.4f, %.4f", whole.loss, half.loss);
    CHECK(half.bytes < 0.55 * whole.bytes); /* with the map of sent elements, 1 bit an element */
    free(whole.config), free(half.config);
}

/* Streaming DiLoCo (2501.18512) finds nothing measurable up to 5 steps; above that there is a
 * warning (checks_test.c). */
TEST(alg_20_five_steps_of_overlap_cost_little_loss)
{
    static settings waits = {{"trainer.local_steps_per_round", "8"}, {NULL, NULL}};
    static settings overlaps = {{"trainer.local_steps_per_round", "8"},
                                {"server.diloco.overlap_steps", "5"},
                                {"server.diloco.local_mix", "0.5"},
                                {NULL, NULL}};
    const outcome tau0 = train_with("diloco", waits), tau5 = train_with("diloco", overlaps);
    if (!(tau5.loss < 1.03 * tau0.loss)) CHECK_FAIL("losses %.4f, %.4f", tau0.loss, tau5.loss);
    free(tau0.config), free(tau5.config);
}

/* Returns how many different values are among the first n of a tensor. */
static size_t n_values(const unsigned char *bytes, size_t n)
{
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < i && memcmp(bytes + 4 * k, bytes + 4 * i, 4) != 0)
            k++;
        found += k == i;
    }
    return found;
}

TEST(alg_22_theta_and_momentum_stay_float32_where_contributions_have_four_bits)
{
    static settings coarse = {{"server.diloco.codec", "e3m0"}, {NULL, NULL}};
    enum { BLOCK = 256 }; /* of one scale, so of 16 values on the wire */
    const outcome out = train_with("diloco", coarse);
    void *bytes;
    size_t len, seen = 0;
    uint64_t entry;
    dl_st st;
    CHECK_OK(diloco_theta_read(&bytes, &len, &entry, out.config->store, UINT64_MAX));
    CHECK_OK(dl_st_open(&st, bytes, len));
    for (size_t i = 0; i < st.n; i++) {
        const dl_st_tensor *t = &st.tensors[i];
        CHECK_STR("F32", t->dtype);
        if (t->end - t->begin < 4 * BLOCK) continue;
        CHECK(n_values(st.data + t->begin, BLOCK) > 2 * 16);
        seen += strncmp(t->name, "diloco.momentum.", 16) == 0;
    }
    CHECK(seen > 0);
    dl_st_close(&st);
    diloco_free(bytes);
    free(out.config);
}

TEST(alg_23_preset_streaming_sends_a_hundredth_of_an_exchange_at_every_step)
{
    static settings papers = {{"trainer.local_steps_per_round", "100"},
                              {"trainer.rounds", "10"}, /* a snapshot is a share of it, not most */
                              {"parameters.model.channels", "32"},
                              {"run.heartbeat", "5"},
                              {NULL, NULL}};
    const outcome out = train_with("streaming", papers);
    if (!(out.reduction >= 100)) CHECK_FAIL("only %.1f times fewer bytes", out.reduction);
    free(out.config);
}

TEST_MAIN(alg_13_pruning_a_half_halves_the_payload_and_leaves_the_loss_within_1_percent,
          alg_20_five_steps_of_overlap_cost_little_loss,
          alg_22_theta_and_momentum_stay_float32_where_contributions_have_four_bits,
          alg_23_preset_streaming_sends_a_hundredth_of_an_exchange_at_every_step)
