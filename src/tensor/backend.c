/* backend.c - the table of backends. A backend is a file and a row. */
#include "tensor/backend.h"

#include "tensor/backend_rows.h"

#include <string.h>

static const struct {
    const char *name;
    diloco_status (*create)(dl_backend **out);
} rows[] = {
    {"cpu", dl_backend_cpu},
    {"trap", dl_backend_trap},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

diloco_status dl_backend_create(dl_backend **out, const char *name)
{
    *out = NULL;
    for (size_t i = 0; i < N_ROWS; i++)
        if (strcmp(rows[i].name, name) == 0) return rows[i].create(out);
    return dl_fail(DILOCO_EINVAL, "there is no backend \"%s\": use cpu or trap", name);
}

/* Reads the number of a card, of one or two digits. Returns the text after it, or NULL. */
static const char *read_card(int *card, const char *digits)
{
    const size_t n = strspn(digits, "0123456789");
    if (n < 1 || n > 2) return NULL;
    *card = digits[0] - '0';
    if (n == 2) *card = 10 * *card + digits[1] - '0';
    return digits + n;
}

/* Appends the numbers of a list "N,M". Returns false if it is no list, or if it is too long. */
static bool read_cards(dl_device_list *out, const char *at)
{
    for (out->n = 0; out->n < DL_MAX_CARDS; at++) {
        at = read_card(&out->cards[out->n], at);
        if (!at) return false;
        out->n++;
        if (*at != ',') return !*at;
    }
    return false;
}

static bool read_name(dl_device_list *out, const char *name)
{
    static const char cuda[] = "cuda";
    const size_t len = sizeof cuda - 1;
    *out = (dl_device_list){.kind = DL_DEVICE_CPU, .n = 1};
    if (strcmp(name, "cpu") == 0) return true;
    out->kind = DL_DEVICE_CUDA;
    if (strncmp(name, cuda, len) != 0) return false;
    return !name[len] || (name[len] == ':' && read_cards(out, name + len + 1));
}

/* Returns the number of a card that is in the list twice, or -1. */
static int repeated_card(const dl_device_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        for (size_t k = 0; k < i; k++)
            if (list->cards[i] == list->cards[k]) return list->cards[i];
    return -1;
}

diloco_status dl_device_of_name(dl_device_list *out, const char *name)
{
    if (!read_name(out, name))
        return dl_fail(DILOCO_EINVAL,
                       "trainer.device = \"%s\": no such device: set cpu, cuda or cuda:N, where N "
                       "is the number of a card, or cuda:N,M for several cards",
                       name);
    const int card = repeated_card(out);
    if (card < 0) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "trainer.device = \"%s\" names card %d twice", name, card);
}

void dl_backend_destroy(dl_backend *backend)
{
    if (backend) backend->ops->destroy(backend);
}

const char *dl_backend_name_at(size_t i)
{
    return i < N_ROWS ? rows[i].name : NULL;
}

diloco_status dl_backend_alloc(dl_backend *backend, void **out, size_t n)
{
    *out = backend->ops->alloc(backend, dl_size_max(n, 1));
    if (*out) return DILOCO_OK;
    return dl_fail(DILOCO_ENOMEM, "out of memory for %zu bytes on backend %s", n,
                   backend->ops->name);
}

void dl_backend_release(dl_backend *backend, void *memory)
{
    if (memory) backend->ops->release(backend, memory);
}
