/* words.h - text cut into words, the pieces within which a byte-pair tokenizer merges.
 *
 * Two ways to cut, each the longest match of the first alternative that fits, as in the regular
 * expressions that their tokenizers give:
 *
 *     GPT-2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *     cl100k   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
 *              ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+          (and Llama 3)
 *
 * A byte that begins no UTF-8 character counts as a character that is neither letter, number nor
 * white space. */
#ifndef DL_DATA_WORDS_H
#define DL_DATA_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum dl_char_class {
    DL_CHAR_OTHER,
    DL_CHAR_LETTER, /* L */
    DL_CHAR_NUMBER, /* N */
    DL_CHAR_SPACE   /* White_Space */
} dl_char_class;

typedef enum dl_word_rule { DL_WORD_RULE_GPT2, DL_WORD_RULE_CL100K, DL_N_WORD_RULES } dl_word_rule;

/* Returns the regular expression as a tokenizer.json writes it. */
const char *dl_word_rule_pattern(dl_word_rule how);

dl_char_class dl_char_class_of(uint32_t code);

/* Returns the number of bytes, at least 1, of the word that begins at at < len. The text after it
 * decides where it ends; the text before it does not. */
size_t dl_word(dl_word_rule how, const char *text, size_t len, size_t at);

/* Returns true if a word ends before text[at] by either rule, whatever the rest of the text is. The
 * two sides may then be cut into words alone. 0 < at < len. */
bool dl_word_border(const char *text, size_t at);

#endif
