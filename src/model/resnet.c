/* resnet.c - ResNet-18 for small images (He et al. 2015, arXiv:1512.03385, section 4.2): the stem
 * is one 3 x 3 convolution without pooling. Four stages of two basic blocks follow; the first of
 * each but the first halves the image. Then come the mean over the rest and a linear layer. Named
 * as in kuangliu/pytorch-cifar. 11,173,962 parameters for three channels and ten classes.
 *
 *     block   x --+-- conv 3x3, BN, ReLU, conv 3x3, BN --+-- ReLU
 *                 +-- itself, or conv 1x1, BN -----------+
 */
#include "model/model_rows.h"
#include "nn/ops.h"

#include <stdio.h>

/* The defaults of torch.nn.BatchNorm2d. */
#define MOMENTUM 0.1f
#define EPS      1e-5f

enum { STAGES = 4, BLOCKS = 2, FIRST = 64 }; /* FIRST: channels of the first stage */
/* At most, with a shortcut's convolution and norm. */
enum { BLOCK_NODES = 10, BLOCK_WEIGHTS = 18, STEM_NODES = 4, STEM_WEIGHTS = 6, END = 3 };
enum { NAME = 48 };

/* norm and conv add one operation whose weights are named `at` + `name`; x.value is consumed. */
static dl_planes norm(dl_graph *g, dl_planes x, const char *at, const char *name)
{
    char full[NAME];
    snprintf(full, sizeof full, "%s%s", at, name);
    return dl_batch_norm(g, x, dl_batch_norm_weights(g, x.channels, full), MOMENTUM, EPS);
}

static dl_planes conv(dl_graph *g, dl_planes x, size_t out, size_t size, size_t stride,
                      const char *at, const char *name)
{
    char full[NAME];
    snprintf(full, sizeof full, "%s%s", at, name);
    return dl_layer_conv(g, x, out, size, stride, size / 2, false, full);
}

/* The fork's second output is the shortcut, whose gradient shares memory with x's
 * (nn/op_fork.c). */
static dl_planes block(dl_graph *g, dl_planes x, size_t out, size_t stride, const char *at)
{
    dl_planes y = x, shortcut = x;
    dl_fork(g, x.value, &y.value, &shortcut.value);
    y = norm(g, conv(g, y, out, 3, stride, at, "conv1"), at, "bn1");
    y.value = dl_relu(g, y.value);
    y = norm(g, conv(g, y, out, 3, 1, at, "conv2"), at, "bn2");
    if (stride != 1 || x.channels != out)
        shortcut = norm(g, conv(g, shortcut, out, 1, stride, at, "shortcut.0"), at, "shortcut.1");
    y.value = dl_relu(g, dl_add(g, y.value, shortcut.value));
    return y;
}

diloco_status dl_resnet_18_build(dl_graph **out, const dl_config *config, const dl_sample *sample,
                                 const dl_graph_target *target)
{
    size_t classes;
    DL_TRY(dl_model_classes(&classes, config, sample));
    if (sample->height != sample->width || sample->height > 8 * DL_WINDOW_MAX)
        return dl_fail(DILOCO_EINVAL,
                       "trainer.model_name = \"resnet_18\" takes square images of at most %d x %d, "
                       "and those of data.datasource = \"%s\" have %zu x %zu",
                       8 * DL_WINDOW_MAX, 8 * DL_WINDOW_MAX, config->datasource, sample->height,
                       sample->width);
    DL_TRY(dl_graph_create(out, STAGES * BLOCKS * BLOCK_NODES + STEM_NODES + END,
                           STAGES * BLOCKS * BLOCK_WEIGHTS + STEM_WEIGHTS + END, 1, target));
    dl_graph *g = *out;
    dl_planes x = dl_layer_first_conv(g, sample, FIRST, 3, 1, 1, false, "conv1");
    x = norm(g, x, "", "bn1");
    x.value = dl_relu(g, x.value);
    for (size_t stage = 0; stage < STAGES; stage++)
        for (size_t i = 0; i < BLOCKS; i++) {
            char at[NAME / 2];
            snprintf(at, sizeof at, "layer%zu.%zu.", stage + 1, i);
            x = block(g, x, (size_t)FIRST << stage, stage > 0 && i == 0 ? 2 : 1, at);
        }
    x = dl_average_pool(g, x, x.height, x.height, 0);
    dl_layer_classes(g, x.value, classes, "linear");
    return DILOCO_OK;
}
