/* bucket_list.c - listing a bucket page by page, and the check of the bucket that ends an open. */
#include "store/http/bucket.h"

#include "base/log.h"
#include "base/text.h"
#include "store/http/bucket_bulk.h"
#include "store/http/xml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SWEPT = 64 };

/* ---- listing */

/* One page of a listing while its XML is read. Entries and names are in the bucket's buffers, which
 * the next page overwrites. */
typedef struct page {
    dl_bucket *b;
    const dl_web_exchange *x;
    dl_bucket_entry entry; /* being read */
    bool has_key, more, no_bucket, escaped;
    char marker[DL_BUCKET_NAME];
} page;

/* Called at the end of each element of the listing. Elements without a key, such as folders, are
 * skipped. */
static diloco_status add_entry(page *p)
{
    dl_bucket *b = p->b;
    if (!p->has_key) return DILOCO_OK;
    p->has_key = false;
    diloco_status status = dl_buf_add(&b->entries, &p->entry, sizeof p->entry);
    p->entry = (dl_bucket_entry){0};
    return status;
}

static diloco_status add_key(page *p, const char *text)
{
    dl_bucket *b = p->b;
    p->has_key = true;
    p->entry.name_at = b->names.len;
    return dl_buf_add(&b->names, text, strlen(text) + 1);
}

/* Take the escapes and the prefix off the page's names. A service says anywhere in a page that its
 * names are escaped. */
static diloco_status strip_names(page *p)
{
    dl_bucket *b = p->b;
    dl_bucket_entry *entries = (dl_bucket_entry *)(void *)b->entries.data;
    const size_t len = strlen(b->prefix);
    for (size_t i = 0; i < b->entries.len / sizeof *entries; i++) {
        char *name = (char *)b->names.data + entries[i].name_at;
        if (p->escaped) (void)dl_text_unescape(name, true); /* a foreign name may be anything */
        if (strncmp(name, b->prefix, len))
            return dl_fail(DILOCO_EPROTO, "%s: the listing has a key that is not under the prefix",
                           b->label);
        entries[i].name_at += len;
    }
    return DILOCO_OK;
}

/* The dialect says which path has which value. Values that are too long end the listing, since a
 * cut marker would repeat a page. */
static diloco_status on_element(void *context, const char *path, const char *text)
{
    page *p = context;
    const dl_bucket_listing *l = &p->b->dialect->listing;
    if (!strcmp(path, l->key)) return add_key(p, text);
    if (!strcmp(path, "EncodingType")) p->escaped = !strcmp(text, "url");
    if (!strcmp(path, l->size)) p->entry.size = strtoull(text, NULL, 10);
    if (!strcmp(path, l->etag)) p->entry.tag = dl_hash_bytes(text, strlen(text));
    if (!strcmp(path, l->modified)) p->entry.old = dl_bucket_is_old(text, p->x);
    if (l->truncated && !strcmp(path, l->truncated)) p->more = !strcmp(text, "true");
    if (l->marker && !strcmp(path, l->marker) && *text) {
        p->more = true;
        if (snprintf(p->marker, sizeof p->marker, "%s", text) >= (int)sizeof p->marker)
            return dl_fail(DILOCO_EPROTO, "%s: the listing's marker is too long", p->b->label);
    }
    return strcmp(path, l->entry) ? DILOCO_OK : add_entry(p);
}

/* Reads one page. An answer that is not right may say that the bucket does not exist. */
static diloco_status listed(void *context, dl_bucket *b, dl_web_exchange *x)
{
    page *p = context;
    p->x = x;
    dl_buf_clear(&b->entries);
    dl_buf_clear(&b->names);
    p->more = p->escaped = false;
    if (x->status >= 200 && x->status <= 299) {
        DL_TRY(dl_xml_walk(x->text.data, x->text.len, b->dialect->listing.root, on_element, p,
                           b->label));
        return strip_names(p);
    }
    p->no_bucket = dl_bucket_is_missing(x);
    return dl_bucket_refusal(b, x);
}

/* `after` and the marker are two ways to continue; the dialect uses one of them. */
static diloco_status fetch_page(page *p, const char *prefix, const char *after, const char *max,
                                dl_time until)
{
    dl_bucket *b = p->b;
    char whole[DL_BUCKET_NAME + 8], behind[DL_BUCKET_NAME + 8], marker[DL_BUCKET_NAME];
    dl_bucket_request r = {.method = "GET", .lists = true};
    snprintf(whole, sizeof whole, "%s%s", b->prefix, prefix);
    if (after) snprintf(behind, sizeof behind, "%s%s", b->prefix, after);
    strcpy(marker, p->marker);
    p->marker[0] = '\0';
    b->dialect->list(&r, whole, after ? behind : NULL, marker, max);
    return dl_bucket_send_request(b, &r, listed, p, DL_BUCKET_PAGE, until);
}

/* Each page has to continue after the last name. So a server that repeats itself cannot keep the
 * walk running for ever. */
diloco_status dl_bucket_walk(dl_bucket *b, const char *prefix, const char *after,
                             dl_bucket_visit visit, void *context, dl_time until)
{
    char last[DL_BUCKET_NAME] = "";
    page p = {.b = b};
    do {
        DL_TRY(fetch_page(&p, prefix, after, "1000", until));
        size_t n = b->entries.len / sizeof(dl_bucket_entry);
        const dl_bucket_entry *entries = (const dl_bucket_entry *)(const void *)b->entries.data;
        if (p.more && n == 0 && !p.marker[0])
            return dl_fail(DILOCO_EPROTO, "%s: the listing continues after no key", b->label);
        if (n && strcmp((const char *)b->names.data + entries[n - 1].name_at, last) <= 0)
            return dl_fail(DILOCO_EPROTO, "%s: the listing does not continue after %s", b->label,
                           last);
        for (size_t i = 0; i < n; i++) {
            const char *name = (const char *)b->names.data + entries[i].name_at;
            snprintf(last, sizeof last, "%s", name);
            DL_TRY(visit(context, b, name, &entries[i], until));
        }
        if (n) after = dl_bulk_skip(prefix, last);
    } while (p.more);
    return DILOCO_OK;
}

typedef struct listing {
    const char *after;
    dl_found_fn found;
    void *context;
} listing;

/* Hidden names, such as .b/, are no keys. An object of a pointer's length is looked at for its true
 * length. */
static diloco_status show(void *context, dl_bucket *b, const char *name,
                          const dl_bucket_entry *entry, dl_time until)
{
    const listing *l = context;
    size_t size = entry->size;
    bool there = true;
    if (!dl_store_key_ok(name)) return DILOCO_OK; /* hidden, or not ours */
    if (l->after && strcmp(name, l->after) <= 0) return DILOCO_OK;
    if (size == DL_POINTER_BYTES || (b->halves && size < DL_POINTER_BYTES))
        DL_TRY(dl_bulk_size(b, name, entry->tag, &size, &there, until));
    return there ? l->found(l->context, name, size) : DILOCO_OK;
}

diloco_status dl_bucket_list(void *self, const char *prefix, const char *after, dl_found_fn found,
                             void *context, dl_time until)
{
    listing l = {after, found, context};
    return dl_bucket_walk(self, prefix, after, show, &l, until);
}

/* ---- the end of an open */

/* Once in a process for each store: it looks for what is at least a day old. */
static bool swept_before(const dl_bucket *b)
{
    static atomic_uint_fast64_t seen[SWEPT];
    dl_hash hash = dl_hash_bytes(b->label, strlen(b->label));
    uint64_t mine;
    memcpy(&mine, hash.bytes, sizeof mine);
    return atomic_exchange(&seen[mine % SWEPT], mine | 1) == (mine | 1);
}

/* Lists one name to see whether the bucket exists and may be listed. Leftovers are removed only by
 * writers, and a failure to do so is a warning. */
diloco_status dl_bucket_ready(dl_bucket *b, bool create)
{
    page p = {.b = b};
    dl_time until = dl_time_after(dl_clock_now(), 60 * DL_SECOND);
    diloco_status status = fetch_page(&p, "", NULL, "1", until);
    if (p.no_bucket)
        return dl_fail(DILOCO_ENOENT, "%s: there is no such bucket; make it first", b->label);
    if (status) return status;
    if (!create && b->entries.len == 0)
        return dl_fail(DILOCO_ENOENT, "nothing is stored under %s; check its spelling", b->label);
    if (!create || swept_before(b)) return DILOCO_OK;
    if (b->dialect->sweep) status = b->dialect->sweep(b, until);
    if (!status) status = dl_bulk_sweep(b, until);
    if (status) dl_log(DILOCO_LOG_WARN, "looking for leftovers: %s", diloco_error_text());
    return DILOCO_OK;
}
