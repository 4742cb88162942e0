/* cmd_data.c - describe the data of a configuration.
 *
 * It loads the data as training would, with the same tokenizer and the same cut into shards, and
 * trains nothing. The digest is the one that a run records, so two machines can compare their
 * copies. */
#include "cli/display/units.h"
#include "cli/settings/settings.h"
#include <diloco/train.h>

#include <inttypes.h>

/* Print one object. An image set has three more members, the shape of an image. */
static diloco_status print_json(const diloco_data_report *r)
{
    dl_buf out;
    dl_json json;
    dl_buf_init(&out, 1 << 20);
    dl_json_init(&json, &out);
    dl_json_object(&json, NULL);
    dl_json_u64(&json, "train_tokens", r->train_tokens);
    dl_json_u64(&json, "test_tokens", r->test_tokens);
    dl_json_u64(&json, "shards", r->shards);
    dl_json_u64(&json, "samples_per_shard", r->samples_per_shard);
    dl_json_u64(&json, "vocab", r->vocab);
    dl_json_u64(&json, "context", r->context);
    if (r->channels) {
        dl_json_u64(&json, "channels", r->channels);
        dl_json_u64(&json, "height", r->height);
        dl_json_u64(&json, "width", r->width);
    }
    dl_json_str(&json, "digest", r->digest);
    dl_json_end(&json);
    return dl_print_json(&json, &out);
}

/* In a report of images a token is an image and `vocab` is the number of classes, so the lines are
 * worded by `channels`, which is 0 for text. */
static diloco_status cmd_data(const dl_args *args)
{
    dl_config config;
    diloco_data_report r;
    dl_unit_text train, test, samples;
    DL_TRY(dl_settings_load(&config, args));
    DL_TRY(diloco_data_check(&r, &config));
    if (dl_args_has(args, DL_FLAG_JSON)) return print_json(&r);
    const char *unit = r.channels ? "images" : "tokens";
    printf("train     %s %s (%s)\n", dl_count_text(train, r.train_tokens), unit, config.train_path);
    printf("test      %s %s (%s)\n", dl_count_text(test, r.test_tokens), unit,
           *config.test_path ? config.test_path
           : r.channels      ? "beside it, or its end"
                             : "the end of the training data");
    dl_count_text(samples, r.samples_per_shard);
    if (r.channels)
        printf("shards    %" PRIu64 ", of %s images of %u x %u x %u each\n"
               "classes   %u\n",
               r.shards, samples, (unsigned)r.channels, (unsigned)r.height, (unsigned)r.width,
               (unsigned)r.vocab);
    else
        printf("shards    %" PRIu64 ", of %s samples of %u tokens each\n"
               "vocab     %u (tokenizer %s)\n",
               r.shards, samples, (unsigned)r.context, (unsigned)r.vocab, config.tokenizer);
    printf("digest    %s\n", r.digest);
    return DILOCO_OK;
}

const dl_command dl_command_data = {
    .name = "data",
    .target = "CONFIG",
    .summary = "describe the data: tokens, shards, samples, digest",
    .flags = DL_FLAGS(DL_FLAG_SET, DL_FLAG_JSON),
    .sets = DL_SETS_ALL,
    .run = cmd_data,
};
