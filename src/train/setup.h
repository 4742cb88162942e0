/* setup.h - the common parts of training, evaluation and sampling: resolved settings, data, model,
 * and the threads it runs on. */
#ifndef DL_TRAIN_SETUP_H
#define DL_TRAIN_SETUP_H

#include "base/config.h"
#include "data/data.h"
#include "model/model.h"
#include "train/device_exchange.h"
#include "train/staging.h"

/* All pointers are owned unless a comment says otherwise. It must not be moved once it is open,
 * since parts of it are borrowed by others. */
typedef struct dl_setup {
    dl_config config; /* with run.threads and parameters.model.vocab resolved */
    dl_data *data;
    dl_pool *pool;
    dl_backend *backend;
    dl_model *model;
    size_t max_rows;         /* samples of a batch at most */
    const dl_sample *sample; /* the data's */
    void *inputs;            /* max_rows of its inputs, and of its targets */
    int32_t *targets;
    /* Host places of the model (staging.h). Read after a pull; a push brings changes back. */
    dl_staging staged_parameters, staged_counters;
    diloco_tensor *tensors; /* [n_tensors] the model's, with data in host memory */
    size_t n_tensors;
    float *parameters;                  /* f32[n_parameters] of these tensors */
    dl_device_exchange device_exchange; /* empty without trainer.device_exchange */
    char device_name[128]; /* of all devices and the precision: "2 x NVIDIA H100, bf16" */
    void **places; /* [n_tensors] data of each; NULL: a counter, which evaluating does not read */
} dl_setup;

/* Threads of one replica: run.threads, or cores / local replicas, at least 1. */
int dl_setup_threads(const dl_config *config);

/* Sets config's AGREE options to those of the run at run.store: all of them, or, if `all` is false,
 * those that are not given. A given option that differs is refused by the join. Returns
 * DILOCO_ENOENT if there is no run. */
DL_MUST_CHECK diloco_status dl_setup_take_run(dl_config *config, bool all);

/* Opens data for n_shards (0: only the meaning of its tokens) and a model for at most max_rows
 * samples. The parameters are zero. After an error nothing needs to be closed. */
DL_MUST_CHECK diloco_status dl_setup_open(dl_setup *out, const dl_config *config, size_t n_shards,
                                          size_t max_rows);
void dl_setup_close(dl_setup *setup);

/* Opens the model of the run at run.store, with the shared parameters after its last entry.
 * n_shards as above. */
DL_MUST_CHECK diloco_status dl_setup_open_run(dl_setup *out, uint64_t *entry,
                                              const dl_config *config, size_t n_shards,
                                              size_t max_rows);

#endif
