/* train.h - libdiloco-train: the project's own trainer on top of run.h. */
#ifndef DILOCO_TRAIN_H
#define DILOCO_TRAIN_H

#include <diloco/clients.h>
#include <diloco/diloco.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Presets: a row of values with its citation (docs/architecture.md section 3). */
typedef struct diloco_preset_value {
    const char *name, *value;
} diloco_preset_value;
typedef struct diloco_preset {
    const char *name, *summary, *citation;
    const diloco_preset_value *values; /* ends with a NULL name */
} diloco_preset;
DILOCO_API const diloco_preset *diloco_preset_at(size_t i); /* NULL after the last */

/* Set preset's values on a configuration (origin "preset <name>"); call it before the file's. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_preset_apply(diloco_config *config,
                                                               const char *name);

/* Values an option may have where they come from a table ("trainer.optimizer": "adamw", "sgd");
 * NULL after the last, or when the option is no such option. For --help and messages. */
DILOCO_API const char *diloco_choice_at(const char *option, size_t i);

/* Everything that can be known wrong before training: unknown names, combinations that are
 * refused (DILOCO_EREFUSED), data that is missing or too short. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_train_check(const diloco_config *config);

/* Progress of a replica, reported often. */
typedef struct diloco_progress {
    uint64_t step, position, positions, entry, entries;
    double loss;         /* of the last step that is known */
    double tokens_per_s; /* or images; over the last seconds */
    double eta_s;        /* until the end of the run; < 0: not known yet */
    const char *phase;   /* "train", "exchange", "wait", "eval", "join", "done" */
} diloco_progress;

typedef struct diloco_train_hooks {
    void (*on_progress)(void *user, const diloco_progress *progress); /* or NULL */
    diloco_record_fn on_record;                                       /* or NULL */
    void *user;
    const volatile int *stop; /* or NULL; set it (a signal handler may) to stop after this step */
} diloco_train_hooks;

/* diloco_train_create creates the run in config's run.store unless it exists. Returns
 * DILOCO_EDIFFERS if another run is there. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_train_create(const diloco_config *config);
/* The same, and hooks->on_record gets the record's line of what creating has moved. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_train_create_with_sized(
    const diloco_config *config, const diloco_train_hooks *hooks, size_t size);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status
diloco_train_create_with(const diloco_config *config, const diloco_train_hooks *hooks)
{
    return diloco_train_create_with_sized(config, hooks, sizeof *hooks);
}

/* Run one replica to the end of the run: create or join, train, exchange, evaluate, record. Options
 * that are not given are those of the run. Warnings of diloco_train_check are in the record.
 * DILOCO_EINTERRUPTED: stopped by hooks->stop, state saved. DILOCO_ENUMERIC: 100 steps in a row had
 * no finite gradient. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_train_sized(const diloco_config *config,
                                                              const char *replica,
                                                              const diloco_train_hooks *hooks,
                                                              size_t size);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status diloco_train(const diloco_config *config,
                                                          const char *replica,
                                                          const diloco_train_hooks *hooks)
{
    return diloco_train_sized(config, replica, hooks, sizeof *hooks);
}

/* Evaluate the run's shared model after its last entry on all of its validation data (data.*
 * from config). DILOCO_ENOENT: no run there. DILOCO_EINVAL: no validation data. */
typedef struct diloco_eval_result {
    uint64_t entry, targets;
    double loss, perplexity;
    double accuracy; /* share of the targets that were the likeliest */
    bool images;     /* of images, not of tokens */
} diloco_eval_result;
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_eval_sized(diloco_eval_result *out, size_t size,
                                                             const diloco_config *config);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status diloco_eval(diloco_eval_result *out,
                                                         const diloco_config *config)
{
    return diloco_eval_sized(out, sizeof *out, config);
}

/* The same on a text (files and folders with commas), encoded by the run's tokenizer and cut into
 * pieces of the run's context. Bits per byte are the loss, in bits, of all tokens but the first
 * over their bytes: comparable between tokenizers. DILOCO_EINVAL: a text of fewer than two tokens,
 * or tokens that no tokenizer knows; DILOCO_EREFUSED: the run's model takes images. */
typedef struct diloco_text_result {
    uint64_t entry, targets, bytes;
    double loss, perplexity, accuracy, bits_per_byte;
} diloco_text_result;
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_eval_text_sized(diloco_text_result *out,
                                                                  size_t size,
                                                                  const diloco_config *config,
                                                                  const char *text);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status diloco_eval_text(diloco_text_result *out,
                                                              const diloco_config *config,
                                                              const char *text)
{
    return diloco_eval_text_sized(out, sizeof *out, config, text);
}

/* Text from the run's shared model, piece by piece. When the context is full its first half is
 * forgotten. temperature 0: the likeliest token. No or an
 * empty prompt: a new line is one. The tokenizer is that of the run's data, which has to be
 * here. */
typedef struct diloco_sample_args {
    const char *prompt;
    size_t n_tokens;
    double temperature;
    uint64_t seed;
    uint64_t top_k; /* draw among this many of the likeliest tokens; 0: all */
    double top_p;   /* draw among the likeliest that together have this probability; 0: all */
} diloco_sample_args;
DILOCO_API DILOCO_MUST_CHECK diloco_status
diloco_sample_sized(const diloco_config *config, const diloco_sample_args *args, size_t size,
                    void (*on_text)(void *user, const char *text, size_t len), void *user);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status
diloco_sample(const diloco_config *config, const diloco_sample_args *args,
              void (*on_text)(void *user, const char *text, size_t len), void *user)
{
    return diloco_sample_sized(config, args, sizeof *args, on_text, user);
}

/* The memory a replica will take, before it takes it (docs/architecture.md section 8; measured
 * against the process by a test). Bytes. */
typedef struct diloco_memory_plan {
    uint64_t parameters;
    uint64_t local, gradient, moments, theta, momentum; /* at most 24 x parameters together */
    uint64_t activations, staging, contributions, data, other;
    uint64_t total;
    int threads;
    double flops_per_token; /* of an image, where there are no tokens */
    char exchange[16];      /* how contributions are moved: "allgather", "leader" */
    uint64_t steps;         /* optimizer steps of one replica in the whole run */
    uint64_t copies; /* in host memory, of the model and the moments on a device; 0 on the CPU */
} diloco_memory_plan;
/* Without data.train_path the data is not counted. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_train_plan_sized(diloco_memory_plan *out,
                                                                   size_t size,
                                                                   const diloco_config *config);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status diloco_train_plan(diloco_memory_plan *out,
                                                               const diloco_config *config)
{
    return diloco_train_plan_sized(out, sizeof *out, config);
}

/* A card that trainer.device names. */
typedef struct diloco_device_report {
    char card[128];  /* its name; empty if it could not be opened */
    uint64_t memory; /* bytes */
    int driver;      /* newest CUDA version that the driver supports: 1000 major + 10 minor */
    int kernels;     /* whose results on it were those of the CPU */
    /* Measured with this program's kernels: float32 operations a second of matrix products, and
     * bytes a second that copies within the card's memory read and write. 0: not measured. */
    double product_flops, copy_bytes;
    double bf16_product_flops; /* as product_flops, with factors and results in bfloat16 */
    int capability;            /* the card's compute capability: 10 major + minor */
    double self_test_seconds;  /* that the comparison of all kernels took; 0: it did not end */
} diloco_device_report;
/* diloco_device_check opens a card ("cuda", "cuda:N"), compares each kernel's results with the
 * CPU's, and measures its speed for at most a second. Of several cards ("cuda:N,M") it does so with
 * each, and the report is of the first one, or of one that fails. Returns DILOCO_EINVAL for another
 * name, DILOCO_EREFUSED if the driver, the card or device code is missing or a result is wrong,
 * DILOCO_EIO if the device fails. After an error the report has what was found before. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_device_check_sized(diloco_device_report *out,
                                                                     size_t size,
                                                                     const char *device);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status diloco_device_check(diloco_device_report *out,
                                                                 const char *device)
{
    return diloco_device_check_sized(out, sizeof *out, device);
}

/* A description of the data. Images count as tokens; their vocab is the number of classes, and
 * their context is 1. */
typedef struct diloco_data_report {
    uint64_t train_tokens, test_tokens, samples_per_shard, shards;
    uint32_t vocab, context;
    uint32_t channels, height, width; /* of an image; 0: not images */
    char digest[33];
} diloco_data_report;
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_data_check_sized(diloco_data_report *out,
                                                                   size_t size,
                                                                   const diloco_config *config);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status diloco_data_check(diloco_data_report *out,
                                                               const diloco_config *config)
{
    return diloco_data_check_sized(out, sizeof *out, config);
}

/* How data.sampler divides samples of the caller's own among logical clients
 * (include/diloco/clients.h). Equal classes, clients and options give the same division everywhere,
 * and the one that the program makes of the same data. */
typedef struct diloco_division diloco_division;

/* diloco_division_create plans the division. classes: int32[n_samples], the class of each sample
 * from 0, read during this call only; NULL: they have none. Returns DILOCO_EINVAL for a negative
 * class, for no client, and for fewer samples or classes than the options need. Returns
 * DILOCO_EREFUSED for more than 2^32 samples or 1024 classes, and DILOCO_ENOMEM. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_division_create(diloco_division **out,
                                                                  const diloco_config *config,
                                                                  const int32_t *classes,
                                                                  uint64_t n_samples,
                                                                  uint64_t n_clients);
DILOCO_API void diloco_division_destroy(diloco_division *division); /* NULL is fine */

/* diloco_division_size returns the number of a client's samples. client: 1 to n_clients; 0 samples
 * for another one. diloco_division_list writes their numbers to out[size]. Returns DILOCO_EINVAL if
 * there is no such client, and DILOCO_ENOMEM. Any thread. */
DILOCO_API uint64_t diloco_division_size(const diloco_division *division, uint64_t client);
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_division_list(uint64_t *out,
                                                                const diloco_division *division,
                                                                uint64_t client);

/* Read a model of Hugging Face's (docs/huggingface.md) into the folder `to`. It writes
 * model.safetensors for trainer.init_from, in float32 with the same values tensor by tensor, and
 * model.toml, a configuration that begins from it. It copies tokenizer.json where there is one.
 * Returns DILOCO_EREFUSED if config.json needs a feature that `gpt` does not have, and names it.
 * Returns DILOCO_EPROTO if a file is damaged, or if a tensor is missing, surplus, or of another
 * shape or type than in config.json. DILOCO_ENOENT, DILOCO_EIO, DILOCO_EFULL. */
typedef struct diloco_import_report {
    uint64_t parameters, tensors, files;
    uint64_t positions; /* the longest text it was made for */
} diloco_import_report;
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_import_sized(diloco_import_report *out,
                                                               size_t size, const char *folder,
                                                               const char *to);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status diloco_import(diloco_import_report *out,
                                                           const char *folder, const char *to)
{
    return diloco_import_sized(out, sizeof *out, folder, to);
}

/* Write the shared model of the run at config's run.store after its last entry, in a format of
 * diloco_export_format_at. "hf" writes a folder `to` that transformers loads; "npz" and "gguf"
 * write a file. dtype: "f32", or rounded to "bf16" or "f16". Returns DILOCO_EINVAL if the format or
 * dtype is unknown, and DILOCO_EREFUSED if the format cannot hold the run's model or the dtype. */
typedef struct diloco_export_report {
    uint64_t entry, tensors;
} diloco_export_report;
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_export_sized(diloco_export_report *out,
                                                               size_t size,
                                                               const diloco_config *config,
                                                               const char *format,
                                                               const char *dtype, const char *to);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status diloco_export(diloco_export_report *out,
                                                           const diloco_config *config,
                                                           const char *format, const char *dtype,
                                                           const char *to)
{
    return diloco_export_sized(out, sizeof *out, config, format, dtype, to);
}
DILOCO_API const char *diloco_export_format_at(size_t i); /* NULL after the last */

/* Learn a byte-pair tokenizer of `vocab` tokens from text (files and folders with commas) and write
 * it as a tokenizer.json. words: how text is cut, "gpt2" or "cl100k". DILOCO_EINVAL: no text, a
 * vocabulary out of range, another way to cut. DILOCO_ENOENT, DILOCO_EIO, DILOCO_EFULL. */
typedef struct diloco_tokenizer_report {
    uint64_t bytes, words, distinct_words; /* of the text */
    uint32_t vocab; /* less than asked for where no pair is left that comes twice */
} diloco_tokenizer_report;
DILOCO_API DILOCO_MUST_CHECK diloco_status
diloco_tokenizer_train_sized(diloco_tokenizer_report *out, size_t size, const char *text,
                             const char *words, uint32_t vocab, const char *to);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status diloco_tokenizer_train(diloco_tokenizer_report *out,
                                                                    const char *text,
                                                                    const char *words,
                                                                    uint32_t vocab, const char *to)
{
    return diloco_tokenizer_train_sized(out, sizeof *out, text, words, vocab, to);
}

/* Encode text (as above) with a tokenizer's file into a folder of token shards, for data.datasource
 * = tokens: on n_threads threads (0: all cores). A call after a kill continues where that one was.
 * DILOCO_EDIFFERS: the folder is there with something else. Otherwise as above. */
typedef struct diloco_prepare_report {
    uint64_t bytes, tokens, shards;
    uint64_t found; /* shards that were there already */
    uint32_t vocab;
} diloco_prepare_report;
typedef void (*diloco_prepare_fn)(void *user, uint64_t done_bytes, uint64_t total_bytes);
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_data_prepare_sized(
    diloco_prepare_report *out, size_t size, const char *text, const char *tokenizer,
    const char *to, int n_threads, diloco_prepare_fn on_progress, void *user);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status
diloco_data_prepare(diloco_prepare_report *out, const char *text, const char *tokenizer,
                    const char *to, int n_threads, diloco_prepare_fn on_progress, void *user)
{
    return diloco_data_prepare_sized(out, sizeof *out, text, tokenizer, to, n_threads, on_progress,
                                     user);
}

#ifdef __cplusplus
}
#endif
#endif
