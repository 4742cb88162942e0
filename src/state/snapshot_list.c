/* snapshot_list.c - which names in snap/ a reader tries, and in which order. Anyone can create any
 * number of names, and each that is tried costs a request or more. So if there are many, unlikely
 * ones are left out. An entry has to be read to find them, so it is read only when their turn
 * comes.
 *
 * 1. The log has no gaps (P4). So no name is valid after one whose entry is missing.
 * 2. The replica that created the entry before a snapshot writes it (P25). So among many names only
 *    that replica's is tried for each entry, and the list needs one name of each. */
#include "state/snapshot_parts.h"

#include "protocol/logical_clients.h"

#include <stdlib.h>
#include <string.h>

enum { ROOM = 1 << 19, MANY_NAMES = 16 };

static dl_snapshot_name *names(const dl_snapshot_listing *list)
{
    return (void *)list->found.data;
}

static size_t n_found(const dl_snapshot_listing *list)
{
    return list->found.len / sizeof(dl_snapshot_name);
}

/* ---- the entry before a snapshot ----------------------------------------------------------- */

/* exists: there is an object of that name. valid: it is an entry, which `creator` has created. */
typedef struct previous {
    bool exists, valid;
    dl_generation creator;
} previous;

static diloco_status read_previous(previous *out, uint64_t snapshot,
                                   const dl_snapshot_listing *list)
{
    const dl_runfile *run = list->run;
    const dl_entry_place place = dl_runfile_place(run, snapshot - 1);
    dl_buf text;
    dl_entry entry;
    *out = (previous){.exists = snapshot == 0};
    if (snapshot == 0) return DILOCO_OK;
    dl_buf_init(&text, DL_ENTRY_TEXT_MAX);
    diloco_status status = dl_entry_init(&entry, dl_clients_max_members(&run->config));
    if (!status) status = dl_entry_get(&text, list->store, snapshot - 1, list->until);
    out->exists = status != DILOCO_ENOENT;
    out->valid = !status && !dl_entry_read_at(&entry, text.data, text.len, &place);
    if (out->valid) out->creator = entry.committer;
    dl_entry_deinit(&entry);
    dl_buf_deinit(&text);
    return dl_snapshot_is_damage(status) ? DILOCO_OK : status;
}

/* Drops names beyond the log's end. The newest name shows whether there are any, and a search finds
 * the first one with few requests. */
static diloco_status drop_beyond_end(dl_snapshot_listing *list)
{
    previous before = {.exists = true};
    size_t low = 0, high = n_found(list), middle = high - 1;
    while (low < high) {
        DL_TRY(read_previous(&before, names(list)[middle].entry, list));
        if (before.exists)
            low = middle + 1;
        else
            high = middle;
        middle = low + (high - low) / 2;
    }
    list->found.len = low * sizeof(dl_snapshot_name);
    return DILOCO_OK;
}

/* ---- listing ------------------------------------------------------------------------------- */

static bool is_many(const dl_snapshot_listing *list)
{
    return list->log && list->n_names > MANY_NAMES;
}

/* Keys ascend, and entries have ten digits, so names come in the order of entries. A snapshot has
 * two objects, one after the other. */
static diloco_status on_key(void *context, const char *key, size_t len)
{
    (void)len;
    dl_snapshot_listing *list = context;
    dl_snapshot_name f = {0};
    const size_t n = n_found(list);
    const dl_snapshot_name *last = n ? &names(list)[n - 1] : NULL;
    if (!dl_key_parse_snapshot(&f.entry, &f.generation, key)) return DILOCO_OK;
    if (f.entry < list->from) return DILOCO_OK;
    if (f.entry > list->before) return DILOCO_ECLOSED;
    list->full = n == list->room;
    if (list->full) return DILOCO_ECLOSED;
    memcpy(list->after, key, strlen(key) + 1);
    if (last && last->entry == f.entry && dl_generation_equal(&last->generation, &f.generation))
        return DILOCO_OK;
    list->n_names++;
    if (is_many(list) && last && last->entry == f.entry) return DILOCO_OK;
    return dl_buf_add(&list->found, &f, sizeof f);
}

/* The list is full: keeps its newer half. */
static void drop_older(dl_snapshot_listing *list)
{
    const size_t n = n_found(list), kept = n / 2;
    memmove(names(list), names(list) + n - kept, kept * sizeof(dl_snapshot_name));
    list->found.len = kept * sizeof(dl_snapshot_name);
}

static int older_first(const void *a, const void *b)
{
    const dl_snapshot_name *x = a, *y = b;
    if (x->entry != y->entry) return x->entry < y->entry ? -1 : 1;
    return dl_generation_compare(&x->generation, &y->generation);
}

/* A full list ends at the log's end, if that is in it. Otherwise the oldest names give way to the
 * rest, or the rest is left out where the oldest one is sought. */
static diloco_status list_all(dl_snapshot_listing *list)
{
    do {
        list->full = false;
        const diloco_status status = dl_store_list(
            list->store, "snap/", list->after[0] ? list->after : NULL, on_key, list, list->until);
        if (status && status != DILOCO_ECLOSED) return status;
        const size_t n = n_found(list);
        if (is_many(list) && n > 0) DL_TRY(drop_beyond_end(list));
        if (n_found(list) < n || !list->newest) return DILOCO_OK;
        if (list->full) drop_older(list);
    } while (list->full);
    return DILOCO_OK;
}

diloco_status dl_snapshot_list(dl_snapshot_listing *list)
{
    if (!list->room) list->room = ROOM;
    list->log = list->run->config.consensus != DL_CONSENSUS_NONE;
    dl_buf_init(&list->found, list->room * sizeof(dl_snapshot_name));
    DL_TRY(list_all(list));
    list->end = n_found(list);
    if (list->end) qsort(names(list), list->end, sizeof(dl_snapshot_name), older_first);
    return DILOCO_OK;
}

/* ---- one after another --------------------------------------------------------------------- */

/* Takes the next name. */
static dl_snapshot_name take(dl_snapshot_listing *list)
{
    return names(list)[list->newest ? --list->end : list->first++];
}

static bool is_next_of(const dl_snapshot_listing *list, uint64_t entry)
{
    return list->first < list->end &&
           names(list)[list->newest ? list->end - 1 : list->first].entry == entry;
}

diloco_status dl_snapshot_next(bool *there, dl_snapshot_name *out, dl_snapshot_listing *list)
{
    *there = false;
    while (list->first < list->end && !*there) {
        previous before = {.valid = true};
        *out = take(list);
        if (is_many(list)) {
            while (is_next_of(list, out->entry))
                take(list);
            DL_TRY(read_previous(&before, out->entry, list));
            out->generation = before.creator;
        }
        *there = before.valid;
    }
    return DILOCO_OK;
}

diloco_status dl_snapshot_each(size_t *n_names, dl_store *store, const dl_runfile *run,
                               dl_snapshot_fn fn, void *context, dl_time (*limit)(void))
{
    dl_snapshot_listing list = {.store = store, .run = run, .until = limit(), .before = UINT64_MAX};
    bool there = true;
    diloco_status status = dl_snapshot_list(&list);
    *n_names = list.n_names;
    while (!status && there) {
        dl_snapshot_name name;
        list.until = limit();
        status = dl_snapshot_next(&there, &name, &list);
        if (!status && there) status = fn(context, name.entry, &name.generation);
    }
    dl_buf_deinit(&list.found);
    return status;
}
