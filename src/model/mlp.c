/* mlp.c - linear layers with ReLU between them, over the pixels in PyTorch's order: fc1, fc2, …, as
 * wide as parameters.model.hidden says, and one to the classes. */
#include "model/model_rows.h"
#include "nn/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HIDDEN = 16, MAX_WIDTH = 1000000 }; /* layers; outputs of one */

/* Reads widths with commas between them. An empty list is valid and gives a linear classifier. */
static diloco_status read_hidden(size_t hidden[MAX_HIDDEN], size_t *n, const char *list)
{
    const char *at = list;
    for (*n = 0; *at; ++*n) {
        char *end;
        long width = strtol(at, &end, 10);
        bool ends = *end == 0 || (*end == ',' && end[1]);
        if (*n == MAX_HIDDEN || end == at || !ends || width < 1 || width > MAX_WIDTH)
            return dl_fail(DILOCO_EINVAL,
                           "parameters.model.hidden = \"%s\": give up to %d widths of 1 to %d with "
                           "commas, such as \"256, 128\"",
                           list, MAX_HIDDEN, MAX_WIDTH);
        hidden[*n] = (size_t)width;
        at = *end ? end + 1 : end;
    }
    return DILOCO_OK;
}

diloco_status dl_mlp_build(dl_graph **out, const dl_config *config, const dl_sample *sample,
                           const dl_graph_target *target)
{
    size_t hidden[MAX_HIDDEN], n, classes;
    char name[24];
    DL_TRY(read_hidden(hidden, &n, config->hidden));
    DL_TRY(dl_model_classes(&classes, config, sample));
    DL_TRY(dl_graph_create(out, 2 * (int)n + 4, 2 * (int)n + 2, 1, target));
    dl_graph *g = *out;
    int x = dl_flatten(g, dl_image(g, sample, 1, 1, 0));
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "fc%zu", i + 1);
        x = dl_relu(g, dl_layer_linear(g, x, hidden[i], name));
    }
    snprintf(name, sizeof name, "fc%zu", n + 1);
    dl_layer_classes(g, x, classes, name);
    dl_graph_set_end(g, 0);
    return DILOCO_OK;
}
