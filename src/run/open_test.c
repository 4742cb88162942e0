/* open_test.c - creates runs, and begins generations in them. */
#include "check.h"
#include "exchange/generations.h"
#include "run/open.h"
#include "stale_store.h"
#include "state/paths.h"

#include <limits.h>

static float w[3] = {1, 2, 3};
static const diloco_tensor tensor = {.name = "w", .data = w, .n_dims = 1, .shape = {3}};

static dl_run_creation creation_of(dl_config *config)
{
    dl_config_init(config);
    return (dl_run_creation){
        .config = config, .tensors = &tensor, .n_tensors = 1, .data_digest = ""};
}

static bool holds(dl_store *store, const char *key)
{
    dl_buf text;
    dl_buf_init(&text, 1 << 20);
    const bool there = dl_store_get(store, &text, key, DL_NEVER) == DILOCO_OK;
    dl_buf_deinit(&text);
    return there;
}

TEST(a_store_that_lets_two_creates_win_is_refused_before_anything_is_made)
{
    dl_config config;
    dl_runfile file;
    dl_hash digest;
    dl_store *store, *handles[DL_PROBE_HANDLES], *inner;
    dl_run_creation what = creation_of(&config);
    CHECK_OK(dl_store_open(&store, "mem://lies", true));
    for (int i = 0; i < DL_PROBE_HANDLES; i++) {
        CHECK_OK(dl_store_open(&inner, "mem://lies", true));
        CHECK_OK(dl_store_faulty(&handles[i], inner, (dl_faults){.win_every_create = true}));
    }
    what.probe = handles;
    CHECK_STATUS(DILOCO_EREFUSED, dl_run_create_or_read(&file, &digest, store, &what));
    CHECK_CONTAINS("exactly one", diloco_error_text());
    CHECK(!holds(store, DL_KEY_RUN));
    for (int i = 0; i < DL_PROBE_HANDLES; i++)
        dl_store_close(handles[i]);
    what.probe = NULL;
    CHECK_OK(dl_run_create_or_read(&file, &digest, store, &what));
    dl_runfile_deinit(&file);
    dl_store_close(store);
}

TEST(the_first_creates_a_run_and_the_others_read_it)
{
    dl_config config;
    dl_runfile first, second, third;
    dl_hash digest[3];
    dl_store *store;
    dl_run_creation what = creation_of(&config);
    CHECK_OK(dl_store_open(&store, "mem://first", true));
    CHECK_STATUS(DILOCO_ENOENT, dl_run_read(&first, &digest[0], store));
    CHECK_CONTAINS("no run in mem://first", diloco_error_text());
    CHECK_OK(dl_run_create_or_read(&first, &digest[0], store, &what));
    CHECK_INT(32, strlen(first.id));
    CHECK_STR(DILOCO_VERSION, first.program);
    w[0] = 9; /* another replica's first values do not matter */
    CHECK_OK(dl_run_create_or_read(&second, &digest[1], store, &what));
    w[0] = 1;
    CHECK_OK(dl_run_read(&third, &digest[2], store));
    CHECK_STR(first.id, second.id);
    CHECK_STR(first.id, third.id);
    CHECK(dl_hash_equal(digest[0], digest[1]) && dl_hash_equal(digest[0], digest[2]));

    dl_state state;
    CHECK_OK(dl_state_init(&state, &third.manifest, dl_outer_find("nesterov"), 4, 1, 1));
    CHECK_OK(dl_snapshot_read_newest(&state, store, &third, digest[2], UINT64_MAX, NULL, DL_NEVER));
    CHECK_BYTES(w, state.now[0].theta, sizeof w);
    CHECK(dl_hash_equal(digest[2], state.control.prev));
    dl_state_deinit(&state);
    dl_runfile_deinit(&first);
    dl_runfile_deinit(&second);
    dl_runfile_deinit(&third);
    dl_store_close(store);
}

/* Names below log/ that are no entries are not a run's. */
TEST(log_without_run_json_refuses_a_new_run)
{
    dl_config config;
    dl_runfile file;
    dl_hash digest;
    bool is_rest;
    dl_store *store;
    dl_run_creation what = creation_of(&config);
    CHECK_OK(dl_store_open(&store, "mem://rest", true));
    CHECK_OK(dl_store_create(store, "log/notes.txt", &(dl_span){"x", 1}, 1, NULL, DL_NEVER));
    CHECK_STATUS(DILOCO_ENOENT, dl_run_read(&file, &digest, store));
    CHECK_OK(dl_run_is_rest(&is_rest, store));
    CHECK(!is_rest);
    CHECK_OK(dl_store_create(store, "log/0000000000.json", &(dl_span){"x", 1}, 1, NULL, DL_NEVER));
    CHECK_STATUS(DILOCO_EDIFFERS, dl_run_read(&file, &digest, store));
    CHECK_STATUS(DILOCO_EDIFFERS, dl_run_create_or_read(&file, &digest, store, &what));
    CHECK_CONTAINS("mem://rest has a log but no run.json", diloco_error_text());
    CHECK(!holds(store, DL_KEY_RUN));
    CHECK_OK(dl_run_is_rest(&is_rest, store));
    CHECK(is_rest);
    dl_store_close(store);
}

TEST(a_restart_takes_the_next_generation_of_its_name)
{
    dl_config config;
    dl_runfile file;
    dl_hash digest;
    dl_generation generation;
    dl_store *store;
    dl_run_creation what = creation_of(&config);
    CHECK_OK(dl_store_open(&store, "mem://lives", true));
    CHECK_OK(dl_run_create_or_read(&file, &digest, store, &what));
    for (uint32_t g = 0; g < 3; g++) {
        CHECK_OK(dl_run_claim_generation(&generation, store, "r1", &file, &file.config, NULL));
        CHECK_STR("r1", generation.replica);
        CHECK_INT(g, generation.number);
    }
    static const char *const beside[] = {"r10", "r1-a", "r1_b", "r"};
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        CHECK_OK(dl_run_claim_generation(&generation, store, beside[i], &file, &file.config, NULL));
        CHECK_INT(0, generation.number);
    }
    static const char *const junk[] = {"gen/r1.0", "gen/r1.00", "gen/r1.0-9", "gen/r1.x.0009"};
    for (size_t i = 0; i < sizeof junk / sizeof *junk; i++)
        CHECK_OK(dl_store_create(store, junk[i], &(dl_span){"x", 1}, 1, NULL, DL_NEVER));
    CHECK_OK(dl_store_create(store, "gen/r1.0007", &(dl_span){"x", 1}, 1, NULL, DL_NEVER));
    CHECK_OK(dl_run_claim_generation(&generation, store, "r1", &file, &file.config, NULL));
    CHECK_INT(8, generation.number);
    CHECK(holds(store, "gen/r1.0008"));
    file.config.first_generation = true; /* it was free when it was chosen */
    CHECK_STATUS(DILOCO_EFENCED,
                 dl_run_claim_generation(&generation, store, "r1", &file, &file.config, NULL));
    CHECK_OK(dl_run_claim_generation(&generation, store, "r2", &file, &file.config, NULL));
    file.config.first_generation = false;
    CHECK_OK(dl_store_create(store, "gen/r1.9999999", &(dl_span){"x", 1}, 1, NULL, DL_NEVER));
    CHECK_STATUS(DILOCO_EINVAL,
                 dl_run_claim_generation(&generation, store, "r1", &file, &file.config, NULL));
    CHECK_CONTAINS("r1.9999999 was its last generation", diloco_error_text());
    CHECK_OK(dl_run_newest_generation(&generation, store, "r1_b"));
    CHECK_STATUS(DILOCO_ENOENT, dl_run_newest_generation(&generation, store, "a b"));
    CHECK_STATUS(DILOCO_ENOENT, dl_run_newest_generation(&generation, store, ""));
    dl_runfile_deinit(&file);
    dl_store_close(store);
}

/* A store that shows the state of a moment ago: its listing is empty. */
static dl_store *open_earlier(const char *url)
{
    stale *s;
    dl_store *store = stale_open(&s, url);
    s->n_stale = INT_MAX;
    return store;
}

TEST(p6_one_of_two_simultaneous_claims_of_a_new_name_fails)
{
    dl_config config;
    dl_runfile file;
    dl_hash digest;
    dl_generation generation;
    dl_store *store, *earlier;
    dl_run_creation what = creation_of(&config);
    CHECK_OK(dl_store_open(&store, "mem://twins", true));
    CHECK_OK(dl_run_create_or_read(&file, &digest, store, &what));
    earlier = open_earlier("mem://twins");
    CHECK_OK(dl_run_claim_generation(&generation, store, "r1", &file, &file.config, NULL));
    CHECK_STATUS(DILOCO_EFENCED,
                 dl_run_claim_generation(&generation, earlier, "r1", &file, &file.config, NULL));
    CHECK_CONTAINS("took the name r1", diloco_error_text());
    CHECK(!holds(store, "gen/r1.0001")); /* and the other object remains */
    CHECK_OK(dl_run_claim_generation(&generation, earlier, "r2", &file, &file.config, NULL));
    dl_runfile_deinit(&file);
    dl_store_close(earlier);
    dl_store_close(store);
}

/* Its claim from r1.0001 was created, and not answered. */
TEST(p6_a_renewal_with_a_stale_listing_passes_over_its_own_earlier_claim)
{
    dl_config config;
    dl_runfile file;
    dl_hash digest;
    dl_generation first, next;
    dl_store *store, *earlier;
    dl_run_creation what = creation_of(&config);
    CHECK_OK(dl_store_open(&store, "mem://renewal", true));
    CHECK_OK(dl_run_create_or_read(&file, &digest, store, &what));
    earlier = open_earlier("mem://renewal");
    CHECK_OK(dl_run_claim_generation(&first, store, "r1", &file, &file.config, NULL));
    CHECK_OK(dl_run_claim_next(&next, store, &first, 1, &file, NULL));
    CHECK_OK(dl_run_claim_next(&next, earlier, &first, 1, &file, NULL));
    CHECK_INT(2, next.number);
    dl_runfile_deinit(&file);
    dl_store_close(earlier);
    dl_store_close(store);
}

TEST(local_state_is_beside_a_folder_and_needs_an_option_elsewhere)
{
    dl_config config;
    dl_config_path dir;
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "run.store", "file:///shared/run/", "test"));
    CHECK_OK(dl_run_state_dir(dir, &config));
    CHECK_INT(0, strncmp(dir, "/shared/run.local/", strlen("/shared/run.local/")));
    CHECK_OK(dl_config_set(&config, "run.store", "mem://x", "test"));
    CHECK_STATUS(DILOCO_EINVAL, dl_run_state_dir(dir, &config));
    CHECK_CONTAINS("run.state_dir", diloco_error_text());
    CHECK_OK(dl_config_set(&config, "run.state_dir", "/tmp/here", "test"));
    CHECK_OK(dl_run_state_dir(dir, &config));
    CHECK_STR("/tmp/here", dir);
}

TEST(contributions_spool_to_disk_on_request_or_if_they_are_large)
{
    dl_config config;
    dl_runfile file = {.id = ""};
    dl_config_path dir;
    dl_config_init(&config);
    CHECK_OK(dl_manifest_init(&file.manifest, &tensor, 1, false));
    CHECK_OK(dl_config_set(&config, "run.state_dir", "/tmp/here", "test"));
    CHECK(dl_run_spool_dir(dir, &config, &file) == NULL);
    CHECK_OK(dl_config_set(&config, "run.spool", "disk", "test"));
    CHECK_STR("/tmp/here", dl_run_spool_dir(dir, &config, &file));
    CHECK_OK(dl_config_set(&config, "run.spool", "auto", "test"));
    CHECK_OK(dl_config_set(&config, "clients.total_clients", "1000", "test"));
    CHECK_OK(dl_config_set(&config, "clients.per_round", "64", "test"));
    CHECK(dl_run_spool_dir(dir, &config, &file) == NULL);
    CHECK_OK(dl_config_set(&config, "clients.per_round", "65", "test"));
    CHECK_STR("/tmp/here", dl_run_spool_dir(dir, &config, &file));
    CHECK_OK(dl_config_set(&config, "clients.per_round", "1", "test"));
    CHECK(dl_run_spool_dir(dir, &config, &file) == NULL);
    dl_fragment_shape *one = file.manifest.fragments;
    dl_fragment_shape two[] = {one[0], {.n_trained = (size_t)1 << 30}};
    file.manifest.fragments = two; /* an entry has one fragment, which may be the longer one */
    file.manifest.n_fragments = 2;
    CHECK_STR("/tmp/here", dl_run_spool_dir(dir, &config, &file));
    CHECK_OK(dl_config_set(&config, "run.spool", "memory", "test"));
    CHECK(dl_run_spool_dir(dir, &config, &file) == NULL);
    file.manifest.fragments = one;
    file.manifest.n_fragments = 1;
    dl_manifest_deinit(&file.manifest);
}

TEST(unknown_names_are_refused)
{
    static const char *const options[] = {"server.diloco.outer_optimizer", "server.diloco.combiner",
                                          "server.diloco.codec",
                                          "server.diloco.aggregation_weighting"};
    dl_config config;
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        dl_config_init(&config);
        CHECK_OK(dl_run_check(&config));
        CHECK_OK(dl_config_set(&config, options[i], "unheard-of", "test"));
        CHECK_STATUS(DILOCO_EINVAL, dl_run_check(&config));
        CHECK_CONTAINS("unheard-of", diloco_error_text());
    }
}

TEST(a_round_without_a_step_is_refused_also_where_the_caller_trains)
{
    dl_config config;
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "sync_every", "0", "test"));
    CHECK_STATUS(DILOCO_EINVAL, dl_run_check(&config));
    CHECK_CONTAINS("or a number of steps", diloco_error_text());
}

TEST(addresses_of_run_peers_are_checked_before_a_run_is_made)
{
    static const char *const bad[][2] = {{"run.peers_listen", "nowhere"},
                                         {"run.peers_listen", "127.0.0.1:70000"},
                                         {"run.peers_listen", "::1:80"},
                                         {"run.peers_address", "ftp://a:1"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        dl_config config;
        dl_config_init(&config);
        CHECK_OK(dl_config_set(&config, bad[i][0], bad[i][1], "test"));
        CHECK_OK(dl_run_check(&config)); /* nothing listens there */
        CHECK_OK(dl_config_set(&config, "run.peers", "true", "test"));
        CHECK_STATUS(DILOCO_EINVAL, dl_run_check(&config));
        CHECK_CONTAINS(bad[i][0], diloco_error_text());
    }
}

TEST_MAIN(a_store_that_lets_two_creates_win_is_refused_before_anything_is_made,
          the_first_creates_a_run_and_the_others_read_it, log_without_run_json_refuses_a_new_run,
          a_restart_takes_the_next_generation_of_its_name,
          p6_one_of_two_simultaneous_claims_of_a_new_name_fails,
          p6_a_renewal_with_a_stale_listing_passes_over_its_own_earlier_claim,
          local_state_is_beside_a_folder_and_needs_an_option_elsewhere,
          contributions_spool_to_disk_on_request_or_if_they_are_large, unknown_names_are_refused,
          a_round_without_a_step_is_refused_also_where_the_caller_trains,
          addresses_of_run_peers_are_checked_before_a_run_is_made)
