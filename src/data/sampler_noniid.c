/* sampler_noniid.c - class weights from a Dirichlet draw of each client: noniid, and mixed, where
 * some clients have them and the rest takes all classes with equal weights. */
#include "base/draw.h"
#include "data/samplers.h"

#include <stdlib.h>

static diloco_status plan(dl_partition *p)
{
    return dl_check_size(p, p->n);
}

/* Draws class weights and then samples; both from the client's own generator. */
static void draw(uint32_t *out, const dl_partition *p, size_t client)
{
    double weights[DL_SAMPLER_MAX_CLASSES];
    dl_rng rng = dl_client_rng(p, client);
    dl_draw_dirichlet(weights, p->n_classes, p->config.concentration, &rng);
    dl_draw_samples(out, dl_equal_size(p, client), p, weights, &rng);
}

/* ---- mixed: "3" is a number of clients, the first ones; "1, 4" and "1," name them from 1 on */

static diloco_status wrong_clients(const dl_partition *p)
{
    return dl_fail(DILOCO_EINVAL,
                   "data.non_iid_clients = \"%s\": name clients from 1 to %zu with commas between "
                   "(\"1, 4\"; \"3,\" for one), or how many there are (\"3\")",
                   p->config.non_iid_clients, p->n_clients);
}

/* Marks the clients of data.non_iid_clients. A comma makes the text a list; the divider after the
 * last number of "1," is not an error. */
static diloco_status mark(dl_partition *p)
{
    const char *text = p->config.non_iid_clients;
    uint64_t number;
    char after;
    bool wrong = false;
    size_t n = 0;
    bool list = false;
    for (const char *c = text; *c; c++)
        list |= *c == ',';
    while (dl_next_number(&text, &number, &after, &wrong)) {
        if (after == ';' || (n++ && !list) || number > p->n_clients || (list && number == 0))
            return wrong_clients(p);
        if (list)
            p->drawn[number - 1] = true;
        else
            for (uint64_t i = 0; i < number; i++)
                p->drawn[i] = true;
    }
    bool ends_so = n && wrong && *text == ','; /* "1," */
    return n && (!wrong || ends_so) ? DILOCO_OK : wrong_clients(p);
}

static diloco_status plan_mixed(dl_partition *p)
{
    DL_TRY(plan(p));
    p->drawn = calloc(p->n_clients, sizeof *p->drawn);
    if (!p->drawn) return dl_fail(DILOCO_ENOMEM, "out of memory for %zu clients", p->n_clients);
    return mark(p);
}

/* An unmarked client draws from all classes with one weight. */
static void draw_mixed(uint32_t *out, const dl_partition *p, size_t client)
{
    double weights[DL_SAMPLER_MAX_CLASSES];
    if (p->drawn[client]) {
        draw(out, p, client);
        return;
    }
    dl_rng rng = dl_client_rng(p, client);
    for (size_t k = 0; k < p->n_classes; k++)
        weights[k] = 1;
    dl_draw_samples(out, dl_equal_size(p, client), p, weights, &rng);
}

const dl_sampler dl_sampler_noniid = {.name = "noniid",
                                      .classes = true,
                                      .overlaps = true,
                                      .plan = plan,
                                      .size = dl_equal_size,
                                      .list = draw};
const dl_sampler dl_sampler_mixed = {.name = "mixed",
                                     .classes = true,
                                     .overlaps = true,
                                     .plan = plan_mixed,
                                     .size = dl_equal_size,
                                     .list = draw_mixed};
