/* corpus.c - maps the files of a path list. A read finds its first file by bisection on the number
 * of the file's first token, and continues with the files after it.
 *
 * Invariant: files[i].first is the sum of the n of the files before it. Empty files stay in the
 * list, because the digest counts them, and the bisection never ends at one. */
#include "data/corpus.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- opening */

/* Returns the place after the last file, zeroed; the caller counts it. NULL: out of memory. */
static dl_corpus_file *next_file(dl_corpus *corpus)
{
    if (corpus->n_files == corpus->cap) {
        size_t cap = corpus->cap ? 2 * corpus->cap : 16;
        dl_corpus_file *files = reallocarray(corpus->files, cap, sizeof *files);
        if (!files) return NULL;
        corpus->files = files;
        corpus->cap = cap;
    }
    dl_corpus_file *file = &corpus->files[corpus->n_files];
    *file = (dl_corpus_file){.first = corpus->n};
    return file;
}

static diloco_status add_arrival(dl_corpus *corpus, const dl_arrival *arrival)
{
    dl_corpus_file *file = next_file(corpus);
    if (file) file->path = strdup(arrival->path);
    if (!file || !file->path) return dl_fail(DILOCO_ENOMEM, "out of memory for the list of files");
    corpus->n_files++;

    file->arriving = arrival->file;
    file->map = arrival->map;
    if (!file->arriving) DL_TRY(dl_map_open(&file->map, file->path));
    diloco_status status = corpus->kind->find(&file->offset, &file->n, &file->map);
    if (status) return dl_fail_context(status, "%s", file->path);
    corpus->n += file->n;
    return DILOCO_OK;
}

static diloco_status add_file(dl_corpus *corpus, const char *path)
{
    return add_arrival(corpus, &(dl_arrival){.path = path});
}

/* Adds a file that may be still arriving. */
static diloco_status on_arrival(void *context, const dl_arrival *arrival)
{
    dl_corpus *corpus = context;
    if (arrival->file) corpus->arrivals = dl_arrivals_now();
    return add_arrival(corpus, arrival);
}

/* Returns true if the kind reads a file of this name from a folder. A file that is named in the
 * list is read whatever its name is. */
static bool takes(const dl_source_kind *kind, const char *name)
{
    size_t len = strlen(name);
    for (const char *const *suffix = kind->suffixes; *suffix; suffix++) {
        size_t n = strlen(*suffix);
        if (len > n && strcmp(name + len - n, *suffix) == 0) return true;
    }
    return false;
}

static int not_hidden(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name); /* alphasort would ask the locale */
}

static diloco_status add_folder(dl_corpus *corpus, const char *path);

/* Adds a folder's entry. A link to a file is followed; one to a folder may be a loop. */
static diloco_status add_entry(dl_corpus *corpus, const char *folder, const char *name)
{
    char path[4096];
    struct stat st;
    int len = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (len < 0 || (size_t)len >= sizeof path) return dl_fail_errno(ENAMETOOLONG, "open", folder);
    if (lstat(path, &st)) return dl_fail_errno(errno, "open", path);
    if (S_ISDIR(st.st_mode)) return add_folder(corpus, path); /* not through links: no loops */
    if (!takes(corpus->kind, name)) return DILOCO_OK;
    if (S_ISLNK(st.st_mode) && stat(path, &st)) return dl_fail_errno(errno, "open", path);
    return S_ISREG(st.st_mode) ? add_file(corpus, path) : DILOCO_OK;
}

/* Adds a folder. The recursion is bounded by the length of a path, which add_entry() checks. */
static diloco_status add_folder(dl_corpus *corpus, const char *path)
{
    struct dirent **entries;
    int n = scandir(path, &entries, not_hidden, by_bytes);
    if (n < 0) return dl_fail_errno(errno, "list", path);
    diloco_status status = DILOCO_OK;
    for (int i = 0; i < n; i++) {
        if (!status) status = add_entry(corpus, path, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return status;
}

static diloco_status add_path(dl_corpus *corpus, const char *path, const char *option)
{
    struct stat st;
    const dl_arrivals *arrivals = dl_arrivals_now();
    bool known = false;
    if (!*path) return dl_fail(DILOCO_EINVAL, "%s: an empty name in the list", option);
    if (arrivals) DL_TRY(arrivals->each(arrivals->self, &known, path, on_arrival, corpus));
    if (known) return DILOCO_OK;
    if (stat(path, &st)) {
        diloco_status status = dl_fail_errno(errno, "open", path);
        return dl_fail_context(status, "%s", option);
    }
    if (S_ISREG(st.st_mode)) return add_file(corpus, path);
    if (!S_ISDIR(st.st_mode))
        return dl_fail(DILOCO_EINVAL, "%s: %s is neither a file nor a folder", option, path);

    size_t before = corpus->n_files;
    DL_TRY(add_folder(corpus, path));
    if (corpus->n_files == before)
        return dl_fail(DILOCO_EINVAL,
                       "%s: folder %s has no file of datasource \"%s\" (names ending in %s …)",
                       option, path, corpus->kind->name, corpus->kind->suffixes[0]);
    return DILOCO_OK;
}

static diloco_status add_list(dl_corpus *corpus, const char *list, const char *option)
{
    if (!*list)
        return dl_fail(DILOCO_EINVAL,
                       "%s is not set: name a file, a folder, or several with commas", option);
    char *copy = strdup(list), *rest = copy, *path;
    if (!copy) return dl_fail(DILOCO_ENOMEM, "out of memory for %s", option);
    diloco_status status = DILOCO_OK;
    while (!status && (path = strsep(&rest, ",")))
        status = add_path(corpus, path + strspn(path, " "), option);
    free(copy);
    if (!status && corpus->n == 0)
        status = dl_fail(DILOCO_EINVAL, "%s: no data: %s is empty", option, list);
    return status;
}

diloco_status dl_corpus_open(dl_corpus *out, const dl_source_kind *kind, const char *list,
                             const char *option)
{
    *out = (dl_corpus){.kind = kind};
    diloco_status status = add_list(out, list, option);
    if (status) dl_corpus_close(out);
    return status;
}

void dl_corpus_close(dl_corpus *corpus)
{
    for (size_t i = 0; i < corpus->n_files; i++) {
        if (!corpus->files[i].arriving) dl_map_close(&corpus->files[i].map);
        free(corpus->files[i].path);
    }
    free(corpus->files);
    *corpus = (dl_corpus){0};
}

/* ---- reading */

static const unsigned char *tokens_of(const dl_corpus_file *file)
{
    return file->map.data + file->offset;
}

/* Returns the last file whose first token is not after `token`. Empty files before it have the same
 * `first`, so it is the one that holds the token. */
static const dl_corpus_file *file_of(const dl_corpus *corpus, uint64_t token)
{
    size_t low = 0, high = corpus->n_files; /* files[low].first <= token < files[high].first */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (corpus->files[middle].first <= token)
            low = middle;
        else
            high = middle;
    }
    return &corpus->files[low];
}

void dl_corpus_read(const dl_corpus *corpus, int32_t *out, uint64_t first, size_t n)
{
    DL_ASSERT(first <= corpus->n && n <= corpus->n - first);
    if (n == 0) return;
    for (const dl_corpus_file *file = file_of(corpus, first); n > 0; file++) {
        size_t at = (size_t)(first - file->first), part = dl_size_min(n, file->n - at);
        if (part) corpus->kind->read(out, tokens_of(file), at, part);
        out += part;
        first += part;
        n -= part;
    }
}

/* ---- files that are still arriving */

/* Bytes of one token: find() has compared the length of the file with the number of tokens. */
static size_t width_of(const dl_corpus_file *file)
{
    return (file->map.len - file->offset) / file->n;
}

void dl_corpus_want(const dl_corpus *corpus, uint64_t first, uint64_t n, bool now)
{
    if (!corpus->arrivals || first >= corpus->n) return;
    if (n > corpus->n - first) n = corpus->n - first;
    for (const dl_corpus_file *file = n ? file_of(corpus, first) : NULL; n > 0; file++) {
        const uint64_t at = first - file->first, left = file->n - at, part = n < left ? n : left;
        if (part && file->arriving)
            corpus->arrivals->want(file->arriving, file->offset + (size_t)at * width_of(file),
                                   (size_t)part * width_of(file), now);
        first += part;
        n -= part;
    }
}

/* Waits for a part of one file, and checks its tokens a few at a time. */
static diloco_status await_part(const dl_corpus *corpus, const dl_corpus_file *file, size_t at,
                                size_t n, size_t vocab)
{
    int32_t tokens[256];
    if (!file->arriving || n == 0) return DILOCO_OK;
    DL_TRY(corpus->arrivals->await(file->arriving, file->offset + at * width_of(file),
                                   n * width_of(file)));
    for (size_t done = 0; done < n; done += 256) {
        const size_t some = dl_size_min(n - done, 256);
        corpus->kind->read(tokens, tokens_of(file), at + done, some);
        for (size_t i = 0; i < some; i++)
            if (tokens[i] < 0 || (size_t)tokens[i] >= vocab)
                return dl_fail(DILOCO_EINVAL,
                               "%s has the token %" PRIu32 ", but the vocabulary has %zu tokens: "
                               "encode the data with the run's tokenizer, or begin a run with a "
                               "larger parameters.model.vocab",
                               file->path, (uint32_t)tokens[i], vocab);
    }
    return DILOCO_OK;
}

diloco_status dl_corpus_await(const dl_corpus *corpus, uint64_t first, size_t n, size_t vocab)
{
    DL_ASSERT(first <= corpus->n && n <= corpus->n - first);
    if (!corpus->arrivals || n == 0) return DILOCO_OK;
    for (const dl_corpus_file *file = file_of(corpus, first); n > 0; file++) {
        const size_t at = (size_t)(first - file->first), part = dl_size_min(n, file->n - at);
        DL_TRY(await_part(corpus, file, at, part, vocab));
        first += part;
        n -= part;
    }
    return DILOCO_OK;
}

/* ---- all of the data */

diloco_status dl_corpus_check_vocab(const dl_corpus *corpus, size_t vocab, int32_t *largest)
{
    for (size_t i = 0; i < corpus->n_files; i++) {
        const dl_corpus_file *file = &corpus->files[i];
        if (file->n == 0 || file->arriving) continue;
        int32_t token = corpus->kind->largest(tokens_of(file), file->n);
        if ((size_t)token >= vocab)
            return dl_fail(
                DILOCO_EINVAL,
                "%s has tokens up to %d, but parameters.model.vocab is %zu: set it to at "
                "least %d, or to 0 to take it from the data",
                file->path, token, vocab, token + 1);
        if (token > *largest) *largest = token;
    }
    return DILOCO_OK;
}

void dl_map_digest(const dl_map *map, dl_digest_stream *digest)
{
    size_t edge = dl_size_min(map->len, 1 << 20);
    unsigned char size[8];
    for (int k = 0; k < 8; k++)
        size[k] = (unsigned char)((uint64_t)map->len >> (8 * k));
    dl_digest_add(digest, size, sizeof size);
    if (edge == 0) return;
    dl_digest_add(digest, map->data, edge);
    dl_digest_add(digest, map->data + map->len - edge, edge);
}

void dl_corpus_digest(const dl_corpus *corpus, dl_digest_stream *digest)
{
    for (size_t i = 0; i < corpus->n_files; i++)
        dl_map_digest(&corpus->files[i].map, digest);
}
