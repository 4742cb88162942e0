/* trainer_options.h - options of [trainer], [parameters.optimizer] and [parameters.learning_rate].
 */
#ifndef DL_BASE_OPTIONS_TRAINER_OPTIONS_H
#define DL_BASE_OPTIONS_TRAINER_OPTIONS_H

#include "base/option_rows.h"

// clang-format off
/* The part of trainer.init_from that a new run begins with (state/continuation.h). An extension also
 * continues that run's schedule and position in the data (run/extension.h). */
#define DL_INITS(X) \
    X(DL_INIT_MODEL, "model") \
    X(DL_INIT_CONTINUATION, "continuation") \
    X(DL_INIT_EXTENSION, "extension")

/* The tensors that weight decay applies to (nn/inner.c). */
#define DL_DECAYED(X) \
    X(DL_DECAYED_MATRICES, "matrices") \
    X(DL_DECAYED_ALL, "all")

/* The arithmetic of the program's own trainer (nn/graph_target.h). */
#define DL_PRECISIONS(X) \
    X(DL_PRECISION_F32, "f32") \
    X(DL_PRECISION_BF16, "bf16")

#define DL_TRAINER_CHOICES(X) \
    X(dl_precision_choice, DL_PRECISIONS) \
    X(dl_init_choice, DL_INITS) \
    X(dl_decayed_choice, DL_DECAYED)

/* The inner training: steps, optimizer, schedule, evaluation. A caller of the library trains by
 * itself, and uses only those that the log needs. */
#define DL_TRAINER_OPTIONS(X) \
    X(NAME, trainer_type, "trainer.type", "basic", "", DL_OPTION_AGREE | DL_OPTION_FIXED, \
      "Kind of trainer. Only basic, which counts completed optimizer steps.") \
    X(NAME, model, "trainer.model_name", "gpt", "", DL_OPTION_AGREE, \
      "Architecture of the model.", \
      .example = "mlp") \
    X(TEXT(dl_config_path, 63), device, "trainer.device", "cpu", "", DL_OPTION_TRAINER, \
      "Device of the program's own trainer: cpu, or experimental cuda or cuda:N for NVIDIA card 0 or N, or cuda:N,M for several cards, which share the micro-batches of a step. Not yet run on a card; its kernels are compared with the CPU's first.") \
    X(CHOICE(dl_precision_choice), precision, "trainer.precision", "f32", "", DL_OPTION_TRAINER, \
      "Type of activations and of the weights in matrix products. With bf16 the parameters, their gradients, moments and sums within an operation stay f32.", \
      .needs = "trainer.device != cpu") \
    X(INT(1, DL_BIG), rounds, "trainer.rounds", "8", "rounds", DL_OPTION_AGREE, \
      "Rounds of the run; every fragment of the model is exchanged once in each.", \
      .example = "30") \
    X(INT(0, DL_BIG), local_steps, "trainer.local_steps_per_round", "500", "steps", DL_OPTION_AGREE, \
      "H: optimizer steps of each replica between two exchanges; 0: clients train trainer.epochs of their data.", \
      .alias = "sync_every", \
      .example = "50") \
    X(INT(0, DL_BIG), epochs, "trainer.epochs", "0", "epochs", DL_OPTION_AGREE, \
      "Most passes of a client over its data in a round; they must reach H. 0: no bound.", \
      .applies_when = "clients.total_clients") \
    X(PATH, local_steps_phases, "trainer.local_steps_phases", "", "rounds x steps", DL_OPTION_AGREE, \
      "Steps of the first rounds, as ROUNDSxSTEPS with commas; the rounds after them take trainer.local_steps_per_round.", \
      .example = "12x10, 8x100", \
      .needs = "swarm.consensus = log") \
    X(INT(1, 1e9), batch_size, "trainer.batch_size", "8", "samples", DL_OPTION_AGREE, \
      "Samples in a micro-batch of one replica; a step takes trainer.gradient_accumulation_steps of these.", \
      .example = "16") \
    X(INT(1, 1e9), accumulation, "trainer.gradient_accumulation_steps", "1", "micro-batches", DL_OPTION_AGREE, \
      "Micro-batches in a step.") \
    X(INT(0, DL_BIG), gradient_bucket_bytes, "trainer.gradient_bucket_bytes", "0", "bytes", DL_OPTION_TRAINER, \
      "Several cards: gradients that are added at once, while the backward pass computes others; at most 16 parts are made. 0: all are added after the backward pass. The bits are the same. Not yet run on cards.") \
    X(INT(0, 1), zero_stage, "trainer.zero_stage", "0", "", DL_OPTION_TRAINER, \
      "Several cards: 1 divides the inner optimizer's state among them (ZeRO-1, 1910.02054), 0 keeps it on the first. The bits are the same. Not yet run on cards.") \
    X(BOOL, device_exchange, "trainer.device_exchange", "false", "", DL_OPTION_TRAINER, \
      "Movements, their int8, int4 or int2 codes, and adoption computed on the card, which keeps a copy of the shared model. The bits are the same. Not yet run on a card.", \
      .needs = "trainer.device != cpu") \
    X(NAME, optimizer, "trainer.optimizer", "adamw", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Inner optimizer.") \
    X(NAME, lr_scheduler, "trainer.lr_scheduler", "cosine", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Schedule of the inner learning rate over completed steps, continued across entries.") \
    X(REAL(0, 1), target_accuracy, "trainer.target_accuracy", "0", "", DL_OPTION_AGREE, \
      "Accuracy of the shared model at which the replica that evaluates ends the run; 0: it ends after trainer.rounds.", \
      .applies_when = "clients.total_clients", \
      .needs = "swarm.consensus = log") \
    X(REAL(0, 1e9), gradient_clip, "trainer.gradient_clip", "1", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Largest norm of a step's gradient; 0: no clipping.") \
    X(REAL(0, 1e6), proximal_mu, "trainer.proximal_mu", "0", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Weight mu of the FedProx term mu / 2 |w - w_round|^2 in a client's loss (1812.06127).", \
      .applies_when = "clients.total_clients") \
    X(BOOL, preserve_optimizer_state, "trainer.preserve_optimizer_state", "true", "", DL_OPTION_AGREE | DL_OPTION_FIXED, \
      "Whether inner moments are kept across entries; false is refused as unfaithful.") \
    X(PATH, init_from, "trainer.init_from", "", "path", 0, \
      "Model that a new run starts from: a safetensors file or its address, or a run's folder or URL. Default: random values.", \
      .example = "model/model.safetensors") \
    X(CHOICE(dl_init_choice), init_as, "trainer.init_as", "model", "", 0, \
      "Part of init_from that is used: exactly the model, or everything that fits of a run's state, outer vectors included (continuation). extension also continues that run's schedule and data.", \
      .applies_when = "trainer.init_from") \
    X(INT(0, 1e12), first_step, "trainer.first_step", "0", "steps", DL_OPTION_AGREE, \
      "Step of the schedule and of the data at which the run begins. With trainer.init_as = extension the other run gives it.", \
      .needs = "swarm.consensus = log") \
    X(INT(0, DL_BIG), eval_every, "trainer.eval_every", "1", "rounds", DL_OPTION_AGREE, \
      "Rounds between two evaluations of the shared model; 0: only at the end.") \
    X(INT(0, DL_BIG), eval_batches, "trainer.eval_batches", "16", "batches", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Batches of validation data in an evaluation; 0: all of it.") \
    X(REAL(0, 1e6), lr, "parameters.optimizer.lr", "4e-4", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Highest learning rate of the inner optimizer, which trains each replica.", \
      .alias = "lr", \
      .example = "1e-3") \
    X(REAL(0, 1e3), weight_decay, "parameters.optimizer.weight_decay", "0.1", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Decoupled weight decay.") \
    X(CHOICE(dl_decayed_choice), decayed, "parameters.optimizer.decay_of", "matrices", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Tensors that decay: those of two or more dimensions, or biases and norms as well, as in PyTorch.") \
    X(REAL(0, 0.999999), beta1, "parameters.optimizer.beta1", "0.9", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Decay of the first moment.", \
      .applies_when = "trainer.optimizer = adamw|qhadamw|muon") \
    X(REAL(0, 1), momentum_weight, "parameters.optimizer.momentum_weight", "0.7", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Share of the first moment in an update of qhadamw; the gradient has the rest. Use it with a beta1 of 0.99 or more.", \
      .applies_when = "trainer.optimizer = qhadamw") \
    X(REAL(0, 0.9999999), beta2, "parameters.optimizer.beta2", "0.999", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Decay of the second moment.", \
      .applies_when = "trainer.optimizer = adamw|qhadamw|muon") \
    X(REAL(1e-20, 1), eps, "parameters.optimizer.eps", "1e-8", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Term added to the root of the second moment.", \
      .applies_when = "trainer.optimizer = adamw|qhadamw|muon|rmsprop") \
    X(REAL(0, 0.9999999), rms_alpha, "parameters.optimizer.alpha", "0.99", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Decay of rmsprop's mean of squares.", \
      .applies_when = "trainer.optimizer = rmsprop") \
    X(BOOL, rms_centered, "parameters.optimizer.centered", "false", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Whether rmsprop divides by the root of the gradient's variance, not of its mean square.", \
      .applies_when = "trainer.optimizer = rmsprop") \
    X(REAL(0, 0.999999), momentum, "parameters.optimizer.momentum", "0", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Momentum of inner sgd and rmsprop.") \
    X(REAL(0, 1e6), muon_lr, "parameters.optimizer.muon_lr", "0", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Learning rate of muon for hidden matrices, under the same schedule; 0: parameters.optimizer.lr.", \
      .applies_when = "trainer.optimizer = muon") \
    X(REAL(0, 0.999999), muon_momentum, "parameters.optimizer.muon_momentum", "0.95", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Momentum of muon.", \
      .applies_when = "trainer.optimizer = muon") \
    X(BOOL, muon_nesterov, "parameters.optimizer.muon_nesterov", "true", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Whether muon uses Nesterov momentum.", \
      .applies_when = "trainer.optimizer = muon") \
    X(INT(1, 99), muon_steps, "parameters.optimizer.muon_steps", "5", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Newton-Schulz iterations of muon.", \
      .applies_when = "trainer.optimizer = muon") \
    X(INT(0, DL_BIG), warmup_steps, "parameters.learning_rate.warmup_steps", "0", "steps", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Steps over which the inner learning rate rises from 0.", \
      .example = "100", \
      .applies_when = "trainer.lr_scheduler = constant|linear|cosine|wsd|LambdaLR") \
    X(INT(0, DL_BIG), warmup_epochs, "parameters.learning_rate.warmup_epochs", "0", "epochs", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Further warm-up in passes over a logical client's data; Plato's warmup_steps = \"5ep\".", \
      .applies_when = "trainer.lr_scheduler = constant|linear|cosine|wsd|LambdaLR") \
    X(REAL(0, 1), gamma, "parameters.learning_rate.gamma", "0", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Factor at each of milestone_steps, of LambdaLR and MultiStepLR, or after each step_size, of StepLR; 0: none for LambdaLR, 0.1 for the others.", \
      .applies_when = "trainer.lr_scheduler = LambdaLR|MultiStepLR|StepLR") \
    X(PATH, milestones, "parameters.learning_rate.milestone_steps", "", "steps", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Times at which gamma applies, of LambdaLR and MultiStepLR, with commas: steps (1000it), epochs of a client (5ep), or both (5ep20it).", \
      .applies_when = "trainer.lr_scheduler = LambdaLR|MultiStepLR") \
    X(PATH, step_size, "parameters.learning_rate.step_size", "", "steps", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Time between two applications of gamma, of StepLR: steps (1000it), epochs of a client (5ep), or both (5ep20it).", \
      .applies_when = "trainer.lr_scheduler = StepLR") \
    X(INT(0, DL_BIG), decay_steps, "parameters.learning_rate.decay_steps", "0", "steps", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Steps of the last phase of wsd; 0: a tenth of the run.", \
      .applies_when = "trainer.lr_scheduler = wsd") \
    X(INT(0, DL_BIG), rewarm_steps, "parameters.learning_rate.rewarm_steps", "0", "steps", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Steps over which the learning rate of a replica that joined without moments rises from 0.", \
      .applies_when = "preset != data_parallel", \
      .why = "the inner optimizer's moments are the shared model's, and a joining replica has them") \
    X(REAL(0, 1), min_lr_ratio, "parameters.learning_rate.min_ratio", "0.1", "of lr", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Share of the learning rate at which linear, cosine and wsd end.", \
      .applies_when = "trainer.lr_scheduler = linear|cosine|wsd")
// clang-format on

DL_TRAINER_CHOICES(DL_CHOICE)
DL_OPTION_STRUCT(trainer, DL_TRAINER_OPTIONS)

#endif
