/* lenet5.c - LeNet-5 (LeCun, Bottou, Bengio, Haffner 1998) as Plato has it: three convolutions, two
 * linear layers, ReLU for tanh, max pooling for subsampling. 61,706 parameters for one channel and
 * ten classes. Its log-softmax is the loss's. */
#include "model/model_rows.h"
#include "nn/ops.h"

/* SIDE: with padding 2 the first convolution sees 32 x 32 pixels, as in the paper; the third one
 * then has exactly one place. */
enum { NODES = 14, WEIGHTS = 10, SIDE = 28 };

static dl_planes relu(dl_graph *g, dl_planes x)
{
    x.value = dl_relu(g, x.value);
    return x;
}

diloco_status dl_lenet5_build(dl_graph **out, const dl_config *config, const dl_sample *sample,
                              const dl_graph_target *target)
{
    size_t classes;
    DL_TRY(dl_model_classes(&classes, config, sample));
    if (sample->height != SIDE || sample->width != SIDE)
        return dl_fail(DILOCO_EINVAL,
                       "trainer.model_name = \"lenet5\" takes images of %d x %d, and those of "
                       "data.datasource = \"%s\" have %zu x %zu: take resnet_18 or mlp",
                       SIDE, SIDE, config->datasource, sample->height, sample->width);
    DL_TRY(dl_graph_create(out, NODES, WEIGHTS, 1, target));
    dl_graph *g = *out;
    dl_planes x = relu(g, dl_layer_first_conv(g, sample, 6, 5, 1, 2, true, "conv1"));
    x = dl_max_pool(g, x, 2, 2, 0);
    x = relu(g, dl_layer_conv(g, x, 16, 5, 1, 0, true, "conv2"));
    x = dl_max_pool(g, x, 2, 2, 0);
    x = relu(g, dl_layer_conv(g, x, 120, 5, 1, 0, true, "conv3")); /* one place */
    int y = dl_relu(g, dl_layer_linear(g, x.value, 84, "fc4"));
    dl_layer_classes(g, y, classes, "fc5");
    return DILOCO_OK;
}
