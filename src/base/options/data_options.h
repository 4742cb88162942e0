/* data_options.h - options of [data] and [algorithm]. */
#ifndef DL_BASE_OPTIONS_DATA_OPTIONS_H
#define DL_BASE_OPTIONS_DATA_OPTIONS_H

#include "base/option_rows.h"

// clang-format off
/* P18: each replica reads its own shard, or the log assigns chunks of common data
 * (protocol/data_assignment.c). */
#define DL_DEALS(X) \
    X(DL_DEAL_LOCAL, "local") \
    X(DL_DEAL_LOG, "log")

/* A client's next samples follow its last ones. `restart` exists to be refused by name
 * (clients/turns.c). */
#define DL_STREAMS(X) \
    X(DL_STREAM_PERSISTENT, "persistent") \
    X(DL_STREAM_RESTART, "restart")

/* Classes within a silo of the orthogonal sampler (data/sampler_orthogonal.c). */
#define DL_LABELS(X) \
    X(DL_LABELS_IID, "iid") \
    X(DL_LABELS_NONIID, "noniid")

#define DL_DATA_CHOICES(X) \
    X(dl_deal_choice, DL_DEALS) \
    X(dl_stream_choice, DL_STREAMS) \
    X(dl_labels_choice, DL_LABELS)

/* The source of samples, and their partition among clients or replicas (src/data). */
#define DL_DATA_OPTIONS(X) \
    X(NAME, datasource, "data.datasource", "text", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Kind of the training data.") \
    X(PATH, train_path, "data.train_path", "", "paths", DL_OPTION_TRAINER, \
      "Training data: text files or folders with commas, the folder of an image set, or addresses such as s3://bucket/shards/.", \
      .alias = "data.data_path", \
      .example = "books/") \
    X(PATH, test_path, "data.test_path", "", "paths", DL_OPTION_TRAINER, \
      "Validation data on this machine. Default: the image set's own, or the end of the training data (data.test_fraction).", \
      .example = "valid.txt") \
    X(PATH, data_cache, "data.cache", "", "path", DL_OPTION_TRAINER, \
      "Folder for data that is fetched from a store. Default: ~/.cache/diloco/data.") \
    X(REAL(0, 0.9), test_fraction, "data.test_fraction", "0.1", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Share held out from the end of the training data when there is no validation data.") \
    X(BOOL, augment, "data.augment", "true", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Whether training images of CIFAR10 are shifted by up to 4 pixels and mirrored at random.") \
    X(NAME, tokenizer, "data.tokenizer", "byte", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Tokenizer: the bytes of a text, or the byte pairs of data.tokenizer_path.") \
    X(PATH, tokenizer_path, "data.tokenizer_path", "", "path", DL_OPTION_TRAINER, \
      "File of data.tokenizer = bpe: tokenizer.json or tiktoken ranks; the same on every machine.", \
      .applies_when = "data.tokenizer = bpe") \
    X(TEXT(dl_config_digest, 32), tokenizer_digest, "data.tokenizer_digest", "", "digest", DL_OPTION_AGREE | DL_OPTION_FIXED, \
      "Digest of the file data.tokenizer_path. It is filled in when a run starts, and a joining replica's file must match it.") \
    X(CHOICE(dl_deal_choice), deal, "data.deal", "local", "", DL_OPTION_AGREE, \
      "Assignment of samples: each replica reads its own shard (local), or the log assigns samples of common data (log).", \
      .needs = "swarm.consensus = log") \
    X(NAME, sampler, "data.sampler", "contiguous", "", DL_OPTION_AGREE, \
      "Rule for which samples a replica or client has.", \
      .alias = "data.partition") \
    X(INT(0, 9e15), data_seed, "data.random_seed", "1", "", DL_OPTION_AGREE, \
      "Seed of the sampler's draws.") \
    X(INT(0, DL_BIG), partition_size, "data.partition_size", "0", "samples", DL_OPTION_AGREE, \
      "Samples of a client; 0: an equal part of all.", \
      .applies_when = "data.sampler = iid|noniid|mixed|orthogonal") \
    X(CHOICE(dl_stream_choice), stream, "data.stream", "persistent", "", DL_OPTION_AGREE, \
      "Where a client's samples start in a round: after its last round (persistent). restart, which is Plato's iid, is refused.") \
    X(REAL(1e-3, 1e6), concentration, "data.concentration", "1", "", DL_OPTION_AGREE, \
      "Dirichlet parameter of the classes of noniid, mixed and orthogonal. Small: few classes each.", \
      .applies_when = "data.sampler = noniid|mixed|orthogonal") \
    X(REAL(1e-3, 1e6), label_concentration, "data.label_concentration", "1", "", DL_OPTION_AGREE, \
      "Dirichlet parameter of the classes of distribution_noniid. Small: few classes each.", \
      .applies_when = "data.sampler = distribution_noniid") \
    X(REAL(1e-3, 1e6), quantity_concentration, "data.client_quantity_concentration", "1", "", DL_OPTION_AGREE, \
      "Dirichlet parameter of the sizes of sample_quantity_noniid and distribution_noniid.", \
      .applies_when = "data.sampler = sample_quantity_noniid|distribution_noniid") \
    X(INT(1, DL_BIG), min_partition_size, "data.min_partition_size", "100", "samples", DL_OPTION_AGREE, \
      "Fewest samples of a client of sample_quantity_noniid and distribution_noniid.", \
      .applies_when = "data.sampler = sample_quantity_noniid|distribution_noniid") \
    X(INT(1, 1e6), per_client_classes, "data.per_client_classes_size", "2", "classes", DL_OPTION_AGREE, \
      "Classes of a client of label_quantity_noniid.", \
      .applies_when = "data.sampler = label_quantity_noniid") \
    X(PATH, institution_classes, "data.institution_class_ids", "", "classes", DL_OPTION_AGREE, \
      "Classes of each silo of orthogonal, as in \"0, 1; 2, 3\". Default: an equal part each.", \
      .applies_when = "data.sampler = orthogonal") \
    X(CHOICE(dl_labels_choice), label_distribution, "data.label_distribution", "iid", "", DL_OPTION_AGREE, \
      "Classes of a silo of orthogonal: even (iid), or by a Dirichlet draw (noniid).", \
      .applies_when = "data.sampler = orthogonal") \
    X(PATH, non_iid_clients, "data.non_iid_clients", "", "clients", DL_OPTION_AGREE, \
      "Number of clients of mixed whose classes are a Dirichlet draw, or a list of them, as in \"1, 4,\".", \
      .applies_when = "data.sampler = mixed") \
    X(NAME, algorithm_type, "algorithm.type", "fedavg", "", DL_OPTION_AGREE | DL_OPTION_FIXED, \
      "Algorithm that clients and server exchange models by. Only fedavg, for server.type = diloco, too.") \
    X(INT(0, 65536), total_silos, "algorithm.total_silos", "0", "silos", DL_OPTION_AGREE, \
      "Silos of orthogonal that share the classes; 0: as many as institution_class_ids names, or one a class.", \
      .applies_when = "data.sampler = orthogonal")
// clang-format on

DL_DATA_CHOICES(DL_CHOICE)
DL_OPTION_STRUCT(data, DL_DATA_OPTIONS)

#endif
