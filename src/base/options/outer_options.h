/* outer_options.h - options of the outer step in [server.diloco], and of Plato's [server]. */
#ifndef DL_BASE_OPTIONS_OUTER_OPTIONS_H
#define DL_BASE_OPTIONS_OUTER_OPTIONS_H

#include "base/option_rows.h"

// clang-format off
/* Plato's names of servers. Each is the name of a preset, which sets the other options. */
#define DL_SERVERS(X) \
    X(DL_SERVER_DILOCO, "diloco") \
    X(DL_SERVER_FEDAVG, "fedavg") \
    X(DL_SERVER_FEDAVGM, "fedavgm") \
    X(DL_SERVER_FEDPROX, "fedprox") \
    X(DL_SERVER_FEDADAM, "fedadam") \
    X(DL_SERVER_FEDYOGI, "fedyogi") \
    X(DL_SERVER_FEDADAGRAD, "fedadagrad")

/* The outer learning rate over the rounds of a run (outer/outer_schedule.c). The entry has its
 * value, so no replica computes a cosine that has to agree (P2.1). */
#define DL_OUTER_LRS(X) \
    X(DL_OUTER_LR_CONSTANT, "constant") \
    X(DL_OUTER_LR_COSINE, "cosine")

/* The outer optimizer moves trained parameters, or every floating tensor. The manifest's regions
 * follow from it. */
#define DL_APPLIES(X) \
    X(DL_APPLY_PARAMETERS, "parameters") \
    X(DL_APPLY_ALL_FLOATING, "all_floating")

#define DL_OUTER_CHOICES(X) \
    X(dl_server_choice, DL_SERVERS) \
    X(dl_outer_lr_choice, DL_OUTER_LRS) \
    X(dl_apply_choice, DL_APPLIES)

/* The outer step. Options with LIVE may change during a run, and then only through an entry
 * (P2.2). */
#define DL_OUTER_OPTIONS(X) \
    X(CHOICE(dl_server_choice), server_type, "server.type", "diloco", "", DL_OPTION_AGREE, \
      "Preset when none is named. With clients and no other value it is fedavg, as in Plato.") \
    X(BOOL, server_test, "server.do_test", "true", "", DL_OPTION_AGREE, \
      "Whether the shared model is evaluated; false: never, whatever trainer.eval_every says.") \
    X(BOOL, synchronous, "server.synchronous", "true", "", DL_OPTION_AGREE, \
      "Whether members wait for each other. false means server.diloco.schedule = async.") \
    X(NAME, outer_optimizer, "server.diloco.outer_optimizer", "nesterov", "", DL_OPTION_AGREE, \
      "Outer optimizer, which moves the shared model.") \
    X(REAL(0, 1e6), outer_lr, "server.diloco.outer_learning_rate", "0.7", "", DL_OPTION_AGREE | DL_OPTION_LIVE, \
      "Learning rate of the outer optimizer, which moves the shared model by the replicas' mean movement.", \
      .alias = "outer_lr", \
      .example = "0.5", \
      .applies_when = "preset != data_parallel", \
      .why = "parameters.optimizer.lr and its schedule are the learning rate") \
    X(REAL(0, 0.999999), outer_mu, "server.diloco.outer_momentum", "0.9", "", DL_OPTION_AGREE | DL_OPTION_LIVE, \
      "Momentum of the outer optimizer. 0.9 suits hundreds of rounds, 0.6 a few dozen.", \
      .alias = "outer_momentum", \
      .example = "0.6") \
    X(REAL(0, 0.999999), outer_beta1, "server.diloco.outer_beta1", "0.9", "", DL_OPTION_AGREE, \
      "Decay of the first moment of adam and the FedOpt optimizers.", \
      .alias = "outer_beta1") \
    X(REAL(0, 0.999999), outer_beta2, "server.diloco.outer_beta2", "0.99", "", DL_OPTION_AGREE, \
      "Decay of the second moment of adam, fedadam and fedyogi.", \
      .alias = "outer_beta2") \
    X(REAL(1e-12, 1e6), outer_eps, "server.diloco.outer_eps", "0.1", "", DL_OPTION_AGREE, \
      "Term added to the root of the second moment. Values far below 0.1 are unstable in 2311.08105.", \
      .alias = "outer_eps") \
    X(INT(1, 1e6), outer_buffer, "server.diloco.outer_buffer", "4", "commits", DL_OPTION_AGREE, \
      "N: commits after which delayed_nesterov moves its momentum once.", \
      .alias = "outer_buffer") \
    X(REAL(0, 1), outer_c, "server.diloco.outer_c", "0", "", DL_OPTION_AGREE, \
      "Share of the momentum that delayed_nesterov applies at the other commits; at most 1 / N.", \
      .alias = "outer_c") \
    X(REAL(0, 0.999999), outer_beta, "server.diloco.outer_beta", "0.1", "", DL_OPTION_AGREE, \
      "b of schedule_free: position of the replicas' start between z and the mean x.", \
      .alias = "outer_beta") \
    X(CHOICE(dl_outer_lr_choice), outer_lr_schedule, "server.diloco.outer_lr_schedule", "constant", "", DL_OPTION_AGREE, \
      "Schedule of the outer learning rate over the rounds of the run.", \
      .alias = "outer_lr_schedule", \
      .applies_when = "preset != data_parallel", \
      .why = "trainer.lr_scheduler is its schedule") \
    X(REAL(0, 1), outer_min_ratio, "server.diloco.outer_min_ratio", "0.1", "", DL_OPTION_AGREE, \
      "Share of the outer learning rate that the cosine reaches in the last round.", \
      .alias = "outer_min_ratio", \
      .applies_when = "server.diloco.outer_lr_schedule = cosine") \
    X(NAME, weighting, "server.diloco.aggregation_weighting", "uniform", "", DL_OPTION_AGREE, \
      "Weight of each member in an entry.", \
      .applies_when = "server.diloco.schedule != async", \
      .why = "each contribution is an entry of its own, and no replica waits") \
    X(CHOICE(dl_apply_choice), apply_to, "server.diloco.apply_outer_optimizer_to", "parameters", "", DL_OPTION_AGREE, \
      "Tensors that the outer optimizer moves; the others are averaged.") \
    X(BOOL, plato_compat, "server.diloco.plato_compat", "false", "", DL_OPTION_AGREE, \
      "Whether a round without an eligible client resets the outer momentum, as Plato does.", \
      .alias = "plato_compat", \
      .applies_when = "clients.total_clients")
// clang-format on

DL_OUTER_CHOICES(DL_CHOICE)
DL_OPTION_STRUCT(outer, DL_OUTER_OPTIONS)

#endif
