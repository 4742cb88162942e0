/* model_rows.h - the list of models, and what their files share. */
#ifndef DL_MODEL_MODEL_ROWS_H
#define DL_MODEL_MODEL_ROWS_H

#include "base/config.h"
#include "base/sample.h"
#include "nn/graph.h"
#include "nn/planes.h"

/* Check the options and build the graph for samples of the kind that the row takes; it is not
 * allocated yet. */
typedef diloco_status (*dl_model_build)(dl_graph **out, const dl_config *config,
                                        const dl_sample *sample, const dl_graph_target *target);

/* The list of models: the name, what its samples are, and its file's dl_<name>_build. A new one is
 * a file and its line here. */
// clang-format off
#define DL_MODELS(X) \
    X(gpt, DL_TOKENS) \
    X(lenet5, DL_IMAGES) \
    X(resnet_18, DL_IMAGES) \
    X(mlp, DL_IMAGES)
// clang-format on

#define DL_DECLARE(name, takes)                                                                    \
    diloco_status dl_##name##_build(dl_graph **out, const dl_config *config,                       \
                                    const dl_sample *sample, const dl_graph_target *target);
DL_MODELS(DL_DECLARE)
#undef DL_DECLARE

/* ---- for classifiers: layers with PyTorch's default initial values, uniform in +-1/sqrt(n), n the
 * inputs of an output (torch.nn.init.kaiming_uniform_ with a = sqrt(5), and the same for biases) */

/* Sets *classes to parameters.model.num_classes, or to the data's number if that is 0. Returns
 * DILOCO_EINVAL if it is smaller, or if in_channels is not the data's. */
DL_MUST_CHECK diloco_status dl_model_classes(size_t *classes, const dl_config *config,
                                             const dl_sample *sample);

/* Adds weight f32[out][in] "name.weight", bias "name.bias", and the product. Returns its value. */
int dl_layer_linear(dl_graph *graph, int x, size_t out, const char *name);
/* Adds the last linear layer and the loss. */
void dl_layer_classes(dl_graph *graph, int x, size_t classes, const char *name);
/* Adds weight f32[out][channels][size][size], a bias if asked, and the convolution. */
dl_planes dl_layer_conv(dl_graph *graph, dl_planes x, size_t out, size_t size, size_t stride,
                        size_t pad, bool bias, const char *name);
/* A convolution straight over the images, the first operation of a graph. */
dl_planes dl_layer_first_conv(dl_graph *graph, const dl_sample *sample, size_t out, size_t size,
                              size_t stride, size_t pad, bool bias, const char *name);

#endif
