/* plain_text.c - plain text: every byte of the file is a token. */
#include "data/corpus.h"

static const char *const suffixes[] = {".txt", ".md", ".rst", ".tex", ".html", ".c",
                                       ".h",   ".cc", ".cpp", ".hpp", ".cu",   ".py",
                                       ".sh",  ".rs", ".go",  ".js",  NULL};

static diloco_status find(size_t *offset, size_t *n, const dl_map *map)
{
    *offset = 0;
    *n = map->len;
    return DILOCO_OK;
}

static void read_bytes(int32_t *out, const unsigned char *tokens, size_t first, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = tokens[first + i];
}

/* The text is not searched, because a prompt may have a byte that the training text lacks. */
static int32_t largest(const unsigned char *tokens, size_t n)
{
    (void)tokens, (void)n;
    return 255;
}

const dl_source_kind dl_source_text = {"text", suffixes, find, read_bytes, largest};
