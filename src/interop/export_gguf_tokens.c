/* export_gguf_tokens.c - the tokenizer in a GGUF file, as llama.cpp's model "gpt2" reads it.
 *
 * A token is written in GPT-2's characters, one for each byte. A merge is two tokens with a blank
 * between them; merges are in order of priority. The rule that cuts text into words has a name. A
 * model may have more tokens than its tokenizer; those are of type "unused".
 *
 * llama.cpp takes token 11 as the end of a text if the file names none, so the file always names
 * one. A text of bytes ends with byte 0.
 *
 * If the data came as token numbers, the run has no tokenizer. The file then has the tokenizer
 * "none", with which llama.cpp loads the model alone. */
#include "base/text.h"
#include "interop/export_gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char GROUP[] = "tokenizer.ggml";

enum { NORMAL = 1, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5 }; /* enum llama_token_type */

/* ---- text as GPT-2's characters */

/* Returns the bytes of UTF-8 that add_characters() adds. The file has a string's length first. */
static size_t length_of(const char *bytes, size_t len)
{
    char utf8[4];
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += dl_utf8_put(utf8, dl_bpe_char_of((unsigned char)bytes[i]));
    return n;
}

static void add_characters(dl_gguf *g, const char *bytes, size_t len)
{
    char utf8[4];
    for (size_t i = 0; i < len; i++)
        dl_pieces_add(&g->pieces, utf8, dl_utf8_put(utf8, dl_bpe_char_of((unsigned char)bytes[i])));
}

/* Adds a token's bytes as a string of GPT-2's characters. */
static void put_characters(dl_gguf *g, const char *bytes, size_t len)
{
    dl_pieces_u(&g->pieces, length_of(bytes, len), 8);
    add_characters(g, bytes, len);
}

/* Adds a token that no text yields, under a name that no other token has. */
static void put_unused(dl_gguf *g, size_t token)
{
    char name[32];
    int len = snprintf(name, sizeof name, "[PAD%zu]", token);
    dl_gguf_string(g, name, (size_t)len);
}

/* The tokens at the beginning and the end of a text. begin_token < 0: texts begin without one. */
static void put_ends(dl_gguf *g, int32_t begin_token, int32_t end_token)
{
    dl_gguf_u32(g, GROUP, "bos_token_id", (uint64_t)(begin_token < 0 ? end_token : begin_token));
    dl_gguf_u32(g, GROUP, "eos_token_id", (uint64_t)end_token);
    dl_gguf_bool(g, GROUP, "add_bos_token", begin_token >= 0);
    dl_gguf_bool(g, GROUP, "add_eos_token", false);
}

/* ---- byte pairs */

/* The kind of any of the model's tokens; DL_BPE_NONE beyond the tokenizer's. */
static dl_bpe_kind kind_of(const dl_bpe *bpe, size_t token)
{
    return token < (size_t)dl_bpe_n(bpe) ? dl_bpe_kind_of(bpe, (int32_t)token) : DL_BPE_NONE;
}

/* Adds the tokens and their types, in the order of their numbers. Added and special tokens are
 * written as their text, since they are matched before text is cut. */
static void put_tokens(dl_gguf *g, const dl_bpe *bpe, size_t vocab)
{
    static const int types[] = {[DL_BPE_NONE] = UNUSED,
                                [DL_BPE_BYTES] = NORMAL,
                                [DL_BPE_ADDED] = USER_DEFINED,
                                [DL_BPE_SPECIAL] = CONTROL};
    dl_gguf_array(g, GROUP, "tokens", DL_GGUF_STRING, vocab);
    for (size_t i = 0; i < vocab; i++) {
        const dl_bpe_kind kind = kind_of(bpe, i);
        size_t len = 0;
        const char *text = kind == DL_BPE_NONE ? NULL : dl_bpe_token(bpe, (int32_t)i, &len);
        if (!text)
            put_unused(g, i);
        else if (kind == DL_BPE_BYTES)
            put_characters(g, text, len);
        else
            dl_gguf_string(g, text, len);
    }
    dl_gguf_array(g, GROUP, "token_type", DL_GGUF_I32, vocab);
    for (size_t i = 0; i < vocab; i++)
        dl_pieces_u(&g->pieces, (uint64_t)types[kind_of(bpe, i)], 4);
}

/* Adds the merges, in order of priority. A blank divides the two; no token has
 * one in GPT-2's characters. */
static diloco_status put_merges(dl_gguf *g, const dl_bpe *bpe)
{
    dl_bpe_merge *merges;
    size_t n;
    DL_TRY(dl_bpe_merges(&merges, &n, bpe));
    dl_gguf_array(g, GROUP, "merges", DL_GGUF_STRING, n);
    for (size_t i = 0; i < n; i++) {
        size_t left, right;
        const char *x = dl_bpe_token(bpe, merges[i].left, &left),
                   *y = dl_bpe_token(bpe, merges[i].right, &right);
        dl_pieces_u(&g->pieces, length_of(x, left) + 1 + length_of(y, right), 8);
        add_characters(g, x, left);
        dl_pieces_add(&g->pieces, " ", 1);
        add_characters(g, y, right);
    }
    free(merges);
    return DILOCO_OK;
}

/* Finds llama.cpp's name for the rule that cuts text. "llama-bpe" and "dbrx" cut alike; the first
 * takes a word that is a token as it is, the second merges its bytes. */
static diloco_status find_cut(const char **out, const dl_bpe *bpe)
{
    const bool whole = dl_bpe_whole_words(bpe);
    *out = dl_bpe_word_rule(bpe) == DL_WORD_RULE_GPT2 ? "gpt-2" : whole ? "llama-bpe" : "dbrx";
    if (dl_bpe_end_token(bpe) < 0)
        return dl_fail(DILOCO_EREFUSED, "the tokenizer has no token that ends a text "
                                        "(<|endoftext|>, <|end_of_text|>), and readers of gguf "
                                        "would take token 11 for one: export it to hf");
    if (dl_bpe_word_rule(bpe) != DL_WORD_RULE_GPT2 || !whole) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED, "the tokenizer cuts text as GPT-2 and takes whole words that "
                                    "are tokens (ignore_merges), for which gguf has no name: "
                                    "export it to hf");
}

static diloco_status put_pairs(dl_gguf *g, const dl_bpe *bpe, size_t vocab)
{
    const char *cut;
    DL_TRY(find_cut(&cut, bpe));
    dl_gguf_text(g, GROUP, "model", "gpt2");
    dl_gguf_text(g, GROUP, "pre", cut);
    put_tokens(g, bpe, vocab);
    DL_TRY(put_merges(g, bpe));
    put_ends(g, dl_bpe_begin_token(bpe), dl_bpe_end_token(bpe));
    return DILOCO_OK;
}

/* ---- bytes */

/* The tokenizer of bytes as one of byte pairs without merges: token i is byte i. */
static void put_bytes(dl_gguf *g, size_t vocab)
{
    dl_gguf_text(g, GROUP, "model", "gpt2");
    dl_gguf_text(g, GROUP, "pre", "gpt-2");
    dl_gguf_array(g, GROUP, "tokens", DL_GGUF_STRING, vocab);
    for (size_t i = 0; i < vocab; i++) {
        const char byte = (char)(unsigned char)i;
        if (i < 256)
            put_characters(g, &byte, 1);
        else
            put_unused(g, i);
    }
    dl_gguf_array(g, GROUP, "token_type", DL_GGUF_I32, vocab);
    for (size_t i = 0; i < vocab; i++)
        dl_pieces_u(&g->pieces, i < 256 ? NORMAL : UNUSED, 4);
    dl_gguf_array(g, GROUP, "merges", DL_GGUF_STRING, 0);
    put_ends(g, -1, 0);
}

diloco_status dl_gguf_tokenizer(dl_gguf *g, const dl_export *e, size_t vocab)
{
    dl_bpe *bpe;
    diloco_status status = DILOCO_OK;
    DL_TRY(dl_export_tokenizer(&bpe, e));
    if (bpe)
        status = put_pairs(g, bpe, vocab);
    else if (strcmp(e->config->datasource, "text") == 0)
        put_bytes(g, vocab);
    else
        dl_gguf_text(g, GROUP, "model", "none");
    dl_bpe_close(bpe);
    return status;
}
