/* view_entries.c - entries of the log as JSON, for the page.
 *
 * The texts of DL_VIEW_ENTRIES entries are kept, each in the slot of its number modulo that. An
 * entry never changes, so any number of viewers cost the store one read each. All functions except
 * known_end need entries_lock. */
#include "view/parts.h"

#include <math.h>
#include <stdlib.h>

/* Bytes of an entry's text at most. */
enum { TEXT_MAX = 8 << 20 };
#define END_IS_KNOWN (2 * DL_SECOND) /* for this long after a refresh */

static dl_view_entry *slot_of(dl_view *view, uint64_t entry)
{
    return &view->entries[entry % DL_VIEW_ENTRIES];
}

static bool is_kept(dl_view *view, uint64_t entry)
{
    const dl_view_entry *slot = slot_of(view, entry);
    return slot->text.len > 0 && slot->entry == entry;
}

/* ---- reading */

static void add_names(dl_json *j, const char *key, const char *const *names, size_t n)
{
    dl_json_array(j, key);
    for (size_t i = 0; i < n; i++)
        dl_json_str(j, NULL, names[i]);
    dl_json_end(j);
}

static diloco_status write_entry(dl_buf *out, const diloco_log_entry *e)
{
    dl_json json, *j = &json;
    dl_json_init(j, out);
    dl_json_object(j, NULL);
    dl_json_u64(j, "entry", e->entry);
    dl_json_bool(j, "commit", e->commit);
    dl_json_u64(j, "fragment", e->fragment);
    dl_json_u64(j, "position", e->position);
    dl_json_str(j, "committer", e->committer);
    dl_json_str(j, "reason", e->reason);
    add_names(j, "members", e->members, e->n_members);
    dl_json_array(j, "weights");
    for (size_t i = 0; e->weights && i < e->n_members; i++)
        dl_json_f64(j, NULL, (double)e->weights[i]);
    dl_json_end(j);
    add_names(j, "rejected", e->rejected, e->n_rejected);
    add_names(j, "rejected_for", e->rejected_for, e->n_rejected);
    dl_json_f64(j, "loss", e->commit ? e->loss : NAN);
    dl_json_u64(j, "bytes", e->bytes);
    dl_json_str(j, "combined_by", e->combined_by);
    dl_json_str(j, "result", e->result);
    dl_json_str(j, "prev", e->prev);
    dl_json_end(j);
    return dl_json_done(j);
}

/* A walk over the log: keep entries until `end`, or until the next one is kept already. */
typedef struct wanted {
    dl_view *view;
    uint64_t end;
} wanted;

/* Keep one entry. Returns DILOCO_ECLOSED, which ends the walk, if the next entry is kept or not
 * wanted. */
static diloco_status keep_entry(void *user, const diloco_log_entry *e)
{
    const wanted *w = user;
    dl_view_entry *slot = slot_of(w->view, e->entry);
    dl_buf_clear(&slot->text);
    slot->entry = e->entry;
    const diloco_status status = write_entry(&slot->text, e);
    if (status) dl_buf_clear(&slot->text); /* a cut text must not count as kept */
    DL_TRY(status);
    return e->entry + 1 < w->end && !is_kept(w->view, e->entry + 1) ? DILOCO_OK : DILOCO_ECLOSED;
}

/* Read the entries of [from, *end) that are not kept. Afterwards *end is the end of the log if that
 * comes earlier. The range has at most DL_VIEW_ENTRIES entries, so none of them drops another. */
static diloco_status keep_range(dl_view *view, uint64_t from, uint64_t *end)
{
    for (uint64_t e = from; e < *end; e++) {
        if (is_kept(view, e)) continue;
        wanted w = {view, *end};
        /* By a reader of its own: viewers of the rest do not wait. The URL never changes. */
        const diloco_status status = diloco_log_walk(view->url, e, keep_entry, &w);
        if (status && status != DILOCO_ECLOSED) return status;
        if (!is_kept(view, e)) *end = e;
    }
    return DILOCO_OK;
}

/* ---- the answer */

/* The number of entries in the log if a refresh has found it within END_IS_KNOWN, else UINT64_MAX.
 * It saves the read that finds nothing after the newest entry. */
static uint64_t known_end(dl_view *view)
{
    pthread_mutex_lock(&view->lock);
    const bool known =
        view->refreshed && !view->in_log && dl_clock_now() - view->refreshed < END_IS_KNOWN;
    const uint64_t end = known ? view->model.n_entries : UINT64_MAX;
    pthread_mutex_unlock(&view->lock);
    return end;
}

/* The texts are whole objects of JSON, so they are joined with commas. */
static diloco_status add_texts(dl_buf *out, dl_view *view, uint64_t from, uint64_t end)
{
    DL_TRY(dl_buf_addf(out, "{\"entries\":["));
    for (uint64_t e = from; e < end; e++) {
        const dl_buf *text = &slot_of(view, e)->text;
        if (e > from) DL_TRY(dl_buf_addf(out, ","));
        DL_TRY(dl_buf_add(out, text->data, text->len));
    }
    return dl_buf_addf(out, "]}");
}

diloco_status dl_view_entries_json(dl_buf *out, dl_view *view, uint64_t from, uint64_t n)
{
    const uint64_t last = known_end(view);
    if (n > DL_VIEW_ENTRIES) n = DL_VIEW_ENTRIES;
    uint64_t end = from > UINT64_MAX - n ? UINT64_MAX : from + n;
    if (end > last) end = last;
    pthread_mutex_lock(&view->entries_lock);
    diloco_status status = keep_range(view, from, &end);
    if (!status) status = add_texts(out, view, from, end);
    pthread_mutex_unlock(&view->entries_lock);
    return status;
}

void dl_view_entries_init(dl_view *view)
{
    pthread_mutex_init(&view->entries_lock, NULL);
    for (size_t i = 0; i < DL_VIEW_ENTRIES; i++)
        dl_buf_init(&view->entries[i].text, TEXT_MAX);
}

void dl_view_entries_deinit(dl_view *view)
{
    for (size_t i = 0; i < DL_VIEW_ENTRIES; i++)
        dl_buf_deinit(&view->entries[i].text);
    pthread_mutex_destroy(&view->entries_lock);
}
