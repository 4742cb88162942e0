/* model_options.h - options of [parameters.model]. */
#ifndef DL_BASE_OPTIONS_MODEL_OPTIONS_H
#define DL_BASE_OPTIONS_MODEL_OPTIONS_H

#include "base/option_rows.h"

// clang-format off
/* Scalings of rotary positions: nn/rope.c computes them, model/hf_config.c reads them from a
 * model's configuration. */
#define DL_ROPE_SCALINGS(X) \
    X(DL_ROPE_NONE, "none") \
    X(DL_ROPE_LINEAR, "linear") \
    X(DL_ROPE_LLAMA3, "llama3")

#define DL_MODEL_CHOICES(X) \
    X(dl_rope_scaling, DL_ROPE_SCALINGS)

/* The model's shape (src/model). The manifest that follows from it has to agree, whatever these
 * say. */
#define DL_MODEL_OPTIONS(X) \
    X(INT(1, 4096), layers, "parameters.model.layers", "4", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Transformer blocks of the model.", \
      .example = "8", \
      .applies_when = "trainer.model_name = gpt") \
    X(INT(1, 4096), heads, "parameters.model.heads", "4", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Attention heads of each block; they divide parameters.model.channels.", \
      .example = "8", \
      .applies_when = "trainer.model_name = gpt") \
    X(INT(0, 4096), kv_heads, "parameters.model.kv_heads", "0", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Heads of keys and values; 0: as many as parameters.model.heads.", \
      .applies_when = "trainer.model_name = gpt") \
    X(INT(0, 4096), head_dim, "parameters.model.head_dim", "0", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Width of a head; 0: channels / heads.", \
      .applies_when = "trainer.model_name = gpt") \
    X(INT(1, 1e6), channels, "parameters.model.channels", "128", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Width of the model: values that represent one token.", \
      .example = "256", \
      .applies_when = "trainer.model_name = gpt") \
    X(INT(0, 1e7), ffn, "parameters.model.ffn", "0", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Width of SwiGLU; 0: 8/3 of channels, rounded up to a multiple of 32.", \
      .applies_when = "trainer.model_name = gpt") \
    X(INT(1, 1e6), context, "parameters.model.context", "128", "tokens", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Tokens in a training sequence.", \
      .example = "256", \
      .applies_when = "trainer.model_name = gpt") \
    X(INT(0, 1e7), vocab, "parameters.model.vocab", "0", "tokens", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Size of the vocabulary; 0: that of the tokenizer.") \
    X(BOOL, tied, "parameters.model.tied", "true", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Whether the output layer uses the matrix of the embedding.", \
      .applies_when = "trainer.model_name = gpt") \
    X(REAL(1, 1e9), rope_theta, "parameters.model.rope_theta", "10000", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Base of the rotary positions.") \
    X(CHOICE(dl_rope_scaling), rope_scaling, "parameters.model.rope_scaling", "none", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Scaling of rotary positions for longer texts: all pairs by rope_factor (linear), or the slow ones as in Llama 3.1 (llama3).") \
    X(REAL(1, 1e6), rope_factor, "parameters.model.rope_factor", "8", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Factor of rope_scaling.", \
      .applies_when = "parameters.model.rope_scaling = linear|llama3") \
    X(REAL(1e-6, 1e6), rope_low, "parameters.model.rope_low_freq_factor", "1", "turns", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Turns over rope_original_context below which llama3 scales a pair fully.", \
      .applies_when = "parameters.model.rope_scaling = llama3") \
    X(REAL(1e-6, 1e6), rope_high, "parameters.model.rope_high_freq_factor", "4", "turns", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Turns above which llama3 does not scale a pair; those between are scaled partly.", \
      .applies_when = "parameters.model.rope_scaling = llama3") \
    X(INT(1, 1e9), rope_original, "parameters.model.rope_original_context", "8192", "tokens", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Length of texts before llama3 scaled the positions.", \
      .applies_when = "parameters.model.rope_scaling = llama3") \
    X(REAL(1e-12, 1), norm_eps, "parameters.model.norm_eps", "1e-5", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Term added under the root of RMSNorm.") \
    X(BOOL, qk_norm, "parameters.model.qk_norm", "false", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Whether each head's queries and keys get an RMSNorm with a learned scale before the rotary positions.", \
      .applies_when = "trainer.model_name = gpt") \
    X(REAL(0, 1), z_loss, "parameters.model.z_loss", "0", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Weight of the squared log-sum-exp of the logits in the loss; 1e-4 in 2501.18512.", \
      .applies_when = "trainer.model_name = gpt") \
    X(INT(0, 1e6), num_classes, "parameters.model.num_classes", "0", "classes", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Classes of a classifier; 0: those of the data.", \
      .applies_when = "trainer.model_name = lenet5|resnet_18|mlp") \
    X(INT(0, 4), in_channels, "parameters.model.in_channels", "0", "", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Channels of a classifier's images; 0: those of the data.", \
      .applies_when = "trainer.model_name = lenet5|resnet_18|mlp") \
    X(TEXT(dl_config_path, 255), hidden, "parameters.model.hidden", "128", "widths", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Widths of the hidden layers of mlp, with commas. Empty: none.", \
      .applies_when = "trainer.model_name = mlp") \
    X(PATH, frozen, "parameters.model.frozen", "", "names", DL_OPTION_AGREE | DL_OPTION_TRAINER, \
      "Prefixes of the names of tensors that do not train, with commas.")
// clang-format on

DL_MODEL_CHOICES(DL_CHOICE)
DL_OPTION_STRUCT(model, DL_MODEL_OPTIONS)

#endif
