/* client_test.c - a client's state is taken up whole or not at all (PROTOCOL P24, FED-37, FED-38).
 */
#include "clients/client.h"

#include "check.h"
#include "scratch.h"

#define RUN "0123456789abcdef0123456789abcdef"

typedef struct scene {
    dl_store *store;
    dl_client_store clients;
    float moments[8], squares[8];
    uint64_t steps;
    dl_private vectors[3];
    dl_config config;
    dl_client_facts facts;
    dl_time until;
    char key[128];
} scene;

static dl_hash some_hash(int i)
{
    return dl_hash_bytes(&i, sizeof i);
}

static dl_hash layout_of(scene *s)
{
    return dl_client_layout(&s->config, some_hash(1), s->vectors, 3);
}

static void begin(scene *s, const char *url)
{
    char digest[DL_HASH_HEX + 1];
    memset(s, 0, sizeof *s);
    dl_config_init(&s->config);
    s->vectors[0] =
        (dl_private){.name = "exp_avg", .data = s->moments, .len = sizeof s->moments, .f32 = true};
    s->vectors[1] = (dl_private){
        .name = "exp_avg_sq", .data = s->squares, .len = sizeof s->squares, .f32 = true};
    s->vectors[2] = (dl_private){.name = "inner.steps", .data = &s->steps, .len = sizeof s->steps};
    s->until = dl_time_after(dl_clock_now(), 10 * DL_SECOND);
    CHECK_OK(dl_store_open(&s->store, url, true));
    dl_client_store_init(&s->clients, s->store, RUN, layout_of(s), s->vectors, 3);
    for (int i = 0; i < 8; i++)
        s->moments[i] = (float)i, s->squares[i] = (float)(100 + i);
    s->steps = 21;
    s->facts = (dl_client_facts){
        .client = 17, .entry = 3, .body = some_hash(2), .steps = 21, .next_sample = 42};
    dl_hash_to_hex(digest, s->facts.body);
    snprintf(s->key, sizeof s->key, "st/" RUN "/client17/0000000003.%s", digest);
}

static void end(scene *s)
{
    dl_client_store_deinit(&s->clients);
    dl_store_close(s->store);
}

static void forget(scene *s)
{
    memset(s->moments, 0, sizeof s->moments);
    memset(s->squares, 0, sizeof s->squares);
    s->steps = 0;
    s->facts.steps = s->facts.next_sample = 0;
}

/* Nothing was taken up. */
static void check_untouched(const scene *s)
{
    CHECK(s->moments[7] == 0 && s->squares[0] == 0 && s->steps == 0);
    CHECK_INT(0, s->facts.next_sample);
}

static void check_refused(scene *s, diloco_status status, const char *why)
{
    forget(s);
    CHECK_STATUS(status, dl_client_load(&s->clients, &s->facts, s->until));
    CHECK_CONTAINS(why, diloco_error_text());
    check_untouched(s);
}

TEST(p24_a_state_comes_back_as_it_was)
{
    scene s;
    begin(&s, "mem://whole");
    CHECK_OK(dl_client_save(&s.clients, &s.facts, s.until));
    CHECK_OK(dl_client_save(&s.clients, &s.facts, s.until)); /* once or twice */
    forget(&s);
    CHECK_OK(dl_client_load(&s.clients, &s.facts, s.until));
    CHECK(s.moments[7] == 7 && s.squares[0] == 100);
    CHECK_INT(21, s.steps);
    CHECK_INT(21, s.facts.steps);
    CHECK_INT(42, s.facts.next_sample);
    end(&s);
}

TEST(fed_37_an_absent_state_or_one_of_another_contribution_is_not_resumed)
{
    scene s;
    begin(&s, "mem://other");
    check_refused(&s, DILOCO_ENOENT, "");
    end(&s);
    begin(&s, "mem://other");
    CHECK_OK(dl_client_save(&s.clients, &s.facts, s.until));
    s.facts.body = some_hash(3); /* the counted contribution was trained elsewhere, to other bits */
    check_refused(&s, DILOCO_ENOENT, "");
    end(&s);
}

TEST(fed_37_any_damaged_byte_and_any_missing_one_is_found)
{
    scene s;
    dl_buf whole;
    begin(&s, "mem://damage");
    CHECK_OK(dl_client_save(&s.clients, &s.facts, s.until));
    dl_buf_init(&whole, 1 << 16);
    CHECK_OK(dl_store_get(s.store, &whole, s.key, s.until));
    CHECK_INT(256 + 32 + 32 + 8, whole.len);
    for (size_t i = 0; i < whole.len; i++) {
        whole.data[i] ^= 1;
        CHECK_OK(dl_store_put(s.store, s.key, whole.data, whole.len, s.until));
        whole.data[i] ^= 1;
        check_refused(&s, DILOCO_EPROTO, "damaged");
    }
    for (size_t len = 0; len < whole.len; len += 37) {
        CHECK_OK(dl_store_put(s.store, s.key, whole.data, len, s.until));
        check_refused(&s, DILOCO_EPROTO, "truncated");
    }
    dl_buf_deinit(&whole);
    end(&s);
}

TEST(fed_37_a_damaged_state_is_replaced_when_its_client_is_trained_again)
{
    scene s;
    begin(&s, "mem://again");
    CHECK_OK(dl_store_put(s.store, s.key, "rubbish", 7, s.until));
    CHECK_OK(dl_client_save(&s.clients, &s.facts, s.until));
    forget(&s);
    CHECK_OK(dl_client_load(&s.clients, &s.facts, s.until));
    CHECK(s.moments[7] == 7);
    end(&s);
}

TEST(fed_37_a_state_of_another_client_or_run_is_not_resumed)
{
    scene s;
    dl_buf bytes;
    begin(&s, "mem://foreign");
    s.facts.client = 18;
    CHECK_OK(dl_client_save(&s.clients, &s.facts, s.until));
    char other[128];
    snprintf(other, sizeof other, "%s", s.key);
    memcpy(strstr(other, "client17/"), "client18/", 9);
    dl_buf_init(&bytes, 1 << 16);
    CHECK_OK(dl_store_get(s.store, &bytes, other, s.until));
    CHECK_OK(dl_store_put(s.store, s.key, bytes.data, bytes.len, s.until));
    s.facts.client = 17;
    check_refused(&s, DILOCO_EPROTO, "the state of another");
    dl_buf_deinit(&bytes);
    end(&s);
}

TEST(fed_38_a_state_of_another_model_optimizer_schedule_or_shape_is_refused)
{
    scene s;
    begin(&s, "mem://layout");
    CHECK_OK(dl_client_save(&s.clients, &s.facts, s.until));
    const dl_hash own = layout_of(&s);
    CHECK(!dl_hash_equal(own, dl_client_layout(&s.config, some_hash(9), s.vectors, 3)));
    CHECK(!dl_hash_equal(own, dl_client_layout(&s.config, some_hash(1), s.vectors, 2)));
    s.vectors[0].name = "momentum_buffer";
    CHECK(!dl_hash_equal(own, layout_of(&s)));
    s.vectors[0].name = "exp_avg";
    CHECK_OK(dl_config_set(&s.config, "trainer.lr_scheduler", "constant", "test"));
    CHECK(!dl_hash_equal(own, layout_of(&s)));
    CHECK_OK(dl_config_set(&s.config, "trainer.lr_scheduler", "cosine", "test"));
    CHECK_OK(dl_config_set(&s.config, "trainer.optimizer", "sgd", "test"));
    s.clients.layout = layout_of(&s);
    check_refused(&s, DILOCO_EDIFFERS, "another model, optimizer or schedule");
    end(&s);
}

static size_t n_keys;
static diloco_status count(void *context, const char *key, size_t len)
{
    (void)context, (void)key, (void)len;
    n_keys++;
    return DILOCO_OK;
}

TEST(p24_only_states_that_no_replica_can_request_are_removed)
{
    scene s;
    begin(&s, "mem://collect");
    for (uint64_t e = 1; e <= 5; e++) {
        s.facts.entry = e;
        CHECK_OK(dl_client_save(&s.clients, &s.facts, s.until));
    }
    s.facts.entry = 3;
    s.facts.body = some_hash(5); /* a loser of entry 3 */
    CHECK_OK(dl_client_save(&s.clients, &s.facts, s.until));
    s.facts.client = 18; /* whose states are its own */
    CHECK_OK(dl_client_save(&s.clients, &s.facts, s.until));
    s.facts.client = 17;
    s.facts.body = some_hash(2);
    CHECK_OK(dl_client_collect(&s.clients, &s.facts, s.until));
    n_keys = 0;
    CHECK_OK(dl_store_list(s.store, "st/" RUN "/client17/", NULL, count, NULL, s.until));
    CHECK_INT(3, n_keys); /* 3, and what later entries may have counted: 4, 5 */
    CHECK_OK(dl_client_load(&s.clients, &s.facts, s.until));
    n_keys = 0;
    CHECK_OK(dl_store_list(s.store, "st/" RUN "/client18/", NULL, count, NULL, s.until));
    CHECK_INT(1, n_keys);
    end(&s);
}

TEST_MAIN(p24_a_state_comes_back_as_it_was,
          fed_37_an_absent_state_or_one_of_another_contribution_is_not_resumed,
          fed_37_any_damaged_byte_and_any_missing_one_is_found,
          fed_37_a_damaged_state_is_replaced_when_its_client_is_trained_again,
          fed_37_a_state_of_another_client_or_run_is_not_resumed,
          fed_38_a_state_of_another_model_optimizer_schedule_or_shape_is_refused,
          p24_only_states_that_no_replica_can_request_are_removed)
