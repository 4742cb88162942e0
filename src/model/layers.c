/* layers.c - layers of classifiers, with their weights (declared in model_rows.h). A layer adds its
 * weight, then its bias, then the operation, which expects the bias right after the weight. */
#include "model/model_rows.h"
#include "nn/ops.h"

#include <math.h>

static void add_bias(dl_graph *g, size_t out, float spread, const char *name)
{
    dl_graph_weight(g, 0, out, DL_INITIAL_UNIFORM, spread, "%s.bias", name);
}

int dl_layer_linear(dl_graph *g, int x, size_t out, const char *name)
{
    size_t in = g->values[x].width;
    float spread = 1 / sqrtf((float)in);
    int weight = dl_graph_weight(g, out, in, DL_INITIAL_UNIFORM, spread, "%s.weight", name);
    add_bias(g, out, spread, name);
    return dl_linear_bias(g, x, weight);
}

/* The last matrix is an end of the model, so that Muon does not update it. */
void dl_layer_classes(dl_graph *g, int x, size_t classes, const char *name)
{
    int weight = g->n_weights;
    dl_class_loss(g, dl_layer_linear(g, x, classes, name));
    dl_graph_set_end(g, weight);
}

static int conv_weights(dl_graph *g, size_t in, size_t out, size_t size, bool bias,
                        const char *name)
{
    const size_t shape[DILOCO_MAX_DIMS] = {out, in, size, size};
    float spread = 1 / sqrtf((float)(in * size * size));
    int weight = dl_graph_weight4(g, shape, DL_INITIAL_UNIFORM, spread, "%s.weight", name);
    if (bias) add_bias(g, out, spread, name);
    return weight;
}

dl_planes dl_layer_conv(dl_graph *g, dl_planes x, size_t out, size_t size, size_t stride,
                        size_t pad, bool bias, const char *name)
{
    int weight = conv_weights(g, x.channels, out, size, bias, name);
    return dl_conv2d(g, x, weight, bias, size, stride, pad);
}

/* dl_image puts the taps of a window side by side, so the convolution itself has size 1. The weight
 * keeps PyTorch's shape. */
dl_planes dl_layer_first_conv(dl_graph *g, const dl_sample *sample, size_t out, size_t size,
                              size_t stride, size_t pad, bool bias, const char *name)
{
    int weight = conv_weights(g, sample->channels, out, size, bias, name);
    return dl_conv2d(g, dl_image(g, sample, size, stride, pad), weight, bias, 1, 1, 0);
}
