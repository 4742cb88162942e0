/* export_test.c - an exported model is the run's to the bit, in each format by its
 * own specification; an imported one comes out again. Readers of others' hold the same in
 * tests/hf/live.py. */
#include "base/safetensors.h"
#include "interop/export_gguf.h"
#include "tensor/widths.h"
#include "train_fixture.h"
#include <diloco/inspect.h>

#include <zlib.h>

/* A run of two entries with shared keys; its store stays for all tests. */
static const dl_config *trained(void)
{
    static dl_config *config;
    fixture_record record = {0};
    if (config) return config;
    config = fixture_config("diloco");
    set(config, "parameters.model.heads", "4");
    set(config, "parameters.model.kv_heads", "2");
    set(config, "parameters.model.tied", "false");
    fixture_train(config, &record, 1);
    fixture_record_free(&record);
    return config;
}

static const char *exported(const char *format, const char *dtype, const char *name)
{
    diloco_export_report report;
    const char *path = scratch_path(name);
    CHECK_OK(diloco_export(&report, trained(), format, dtype, path));
    CHECK_INT(2, report.entry);
    CHECK_INT(12, report.tensors); /* 9 of the block, embedding, norm, head */
    return path;
}

/* ---- hf */

static float *values_of(const dl_st *st, const char *name, size_t *n)
{
    const dl_st_tensor *t = dl_st_find(st, name);
    CHECK(t != NULL);
    *n = (t->end - t->begin) / dl_st_dtype_size(t->dtype);
    float *out = malloc(*n * sizeof *out);
    dl_widen(out, st->data + t->begin, *n, t->dtype);
    return out;
}

static void open_theta(dl_st *st, void **bytes)
{
    size_t len;
    uint64_t entry;
    CHECK_OK(diloco_theta_read(bytes, &len, &entry, trained()->store, UINT64_MAX));
    CHECK_OK(dl_st_open(st, *bytes, len));
}

static char *file_in(const char *folder, const char *file)
{
    static char path[DL_PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return path;
}

TEST(a_model_goes_out_and_comes_in_again_to_the_bit)
{
    diloco_import_report report;
    dl_st theta, back;
    dl_map map;
    void *bytes;
    const char *out = exported("hf", "f32", "hf"), *in = scratch_path("hf-in");
    CHECK(dl_file_exists(file_in(out, "config.json")));
    CHECK(dl_file_exists(file_in(out, "generation_config.json")));
    CHECK_OK(diloco_import(&report, out, in));
    open_theta(&theta, &bytes);
    CHECK_OK(dl_map_open(&map, file_in(in, "model.safetensors")));
    CHECK_OK(dl_st_open(&back, map.data, map.len));
    CHECK_INT(12, back.n);
    for (size_t i = 0; i < back.n; i++) {
        const dl_st_tensor *t = &back.tensors[i], *own = dl_st_find(&theta, t->name);
        CHECK(own != NULL);
        CHECK_INT(own->end - own->begin, t->end - t->begin);
        CHECK_BYTES(theta.data + own->begin, back.data + t->begin, t->end - t->begin);
    }
    dl_st_close(&theta), dl_st_close(&back);
    dl_map_close(&map);
    diloco_free(bytes);
}

/* Narrow values come out as they went in: out, in, a new run, out. */
TEST(bf16_and_f16_round_once)
{
    static const char *const dtypes[] = {"bf16", "f16"};
    for (int i = 0; i < 2; i++) {
        char name[32];
        diloco_import_report imported;
        diloco_export_report report;
        dl_map a, b;
        snprintf(name, sizeof name, "hf-%s", dtypes[i]);
        const char *first = exported("hf", dtypes[i], name);
        snprintf(name, sizeof name, "in-%s", dtypes[i]);
        const char *in = scratch_path(name);
        CHECK_OK(diloco_import(&imported, first, in));
        dl_config *run = fixture_config("diloco");
        set(run, "parameters.model.heads", "4");
        set(run, "parameters.model.kv_heads", "2");
        set(run, "parameters.model.tied", "false");
        set(run, "trainer.init_from", file_in(in, "model.safetensors"));
        CHECK_OK(diloco_train_create(run));
        snprintf(name, sizeof name, "again-%s", dtypes[i]);
        const char *again = scratch_path(name);
        CHECK_OK(diloco_export(&report, run, "hf", dtypes[i], again));
        CHECK_OK(dl_map_open(&a, file_in(first, "model.safetensors")));
        CHECK_OK(dl_map_open(&b, file_in(again, "model.safetensors")));
        CHECK_INT(a.len, b.len);
        CHECK_BYTES(a.data, b.data, a.len);
        dl_map_close(&a), dl_map_close(&b);
        free(run);
    }
}

/* ---- npz: a zip file, read from its end */

static uint64_t u_at(const unsigned char *p, int n)
{
    uint64_t x = 0;
    for (int i = n; i-- > 0;)
        x = x << 8 | p[i];
    return x;
}

/* The directory's entry at *at: its name, and its member's bytes, whose checksum is right. */
static const unsigned char *member_at(const dl_map *map, size_t *at, char name[256], size_t *len)
{
    const unsigned char *p = map->data + *at;
    CHECK_INT(0x02014b50, u_at(p, 4));
    CHECK_INT(0, u_at(p + 10, 2)); /* stored */
    size_t n_name = u_at(p + 28, 2), n_extra = u_at(p + 30, 2);
    memcpy(name, p + 46, n_name);
    name[n_name] = '\0';
    const unsigned char *extra = p + 46 + n_name;
    CHECK_INT(1, u_at(extra, 2));
    *len = u_at(extra + 4, 8);
    CHECK_INT(*len, u_at(extra + 12, 8));
    const unsigned char *local = map->data + u_at(extra + 20, 8);
    CHECK_INT(0x04034b50, u_at(local, 4));
    const unsigned char *data = local + 30 + u_at(local + 26, 2) + u_at(local + 28, 2);
    CHECK_INT(u_at(p + 16, 4), crc32_z(0, data, *len));
    *at += 46 + n_name + n_extra;
    return data;
}

static void check_npz(const char *dtype, const char *descr)
{
    dl_map map;
    dl_st theta;
    void *bytes;
    char name[256], file[32];
    snprintf(file, sizeof file, "%s.npz", dtype);
    open_theta(&theta, &bytes);
    CHECK_OK(dl_map_open(&map, exported("npz", dtype, file)));
    const unsigned char *end = map.data + map.len - 22 - 20 - 56;
    CHECK_INT(0x06064b50, u_at(end, 4));
    CHECK_INT(12, u_at(end + 32, 8));
    size_t at = u_at(end + 48, 8), n;
    for (int i = 0; i < 12; i++) {
        size_t len;
        const unsigned char *npy = member_at(&map, &at, name, &len);
        *strstr(name, ".npy") = '\0';
        float *own = values_of(&theta, name, &n);
        CHECK_BYTES("\x93NUMPY\x01\x00", npy, 8);
        size_t header = 10 + u_at(npy + 8, 2), width = strcmp(dtype, "f16") ? 4 : 2;
        char *text = strndup((const char *)npy + 10, header - 10);
        CHECK_CONTAINS(descr, text);
        CHECK_INT(header + n * width, len);
        unsigned char *expected = malloc(n * width);
        dl_narrow(expected, own, n, width == 2 ? "F16" : "F32");
        CHECK_BYTES(expected, npy + header, n * width);
        free(expected), free(text), free(own);
    }
    CHECK_INT(end - map.data, at);
    dl_st_close(&theta);
    dl_map_close(&map);
    diloco_free(bytes);
}

TEST(npz_is_a_zip_file_of_arrays)
{
    check_npz("f32", "'descr': '<f4', 'fortran_order': False");
    check_npz("f16", "'descr': '<f2', 'fortran_order': False");
}

/* Buffers of a foreign model; the built-in ones have floats alone. */
TEST(npz_has_the_types_of_buffers_too)
{
    static const int64_t steps = 7;
    static const bool mask[5] = {true, false, true, true, false};
    dl_st_tensor tensors[] = {{.name = "mask", .dtype = "BOOL", .n_dims = 1, .shape = {5}},
                              {.name = "steps", .dtype = "I64", .n_dims = 0}};
    dl_span data[] = {{mask, sizeof mask}, {&steps, sizeof steps}};
    dl_export e = {.to = scratch_path("buffers.npz"),
                   .dtype = "F32",
                   .tensors = tensors,
                   .data = data,
                   .n = 2};
    dl_map map;
    char name[256];
    CHECK_OK(dl_export_npz.write(&e));
    CHECK_OK(dl_map_open(&map, e.to));
    size_t at = u_at(map.data + map.len - 22 - 20 - 8, 8), len;
    for (size_t i = 0; i < 2; i++) {
        const char *npy = (const char *)member_at(&map, &at, name, &len);
        size_t header = 10 + u_at((const unsigned char *)npy + 8, 2);
        CHECK(memmem(npy, header, i ? "'descr': '<i8'" : "'descr': '|b1'", 14));
        CHECK_INT(header + data[i].len, len);
        CHECK_BYTES(data[i].data, npy + header, data[i].len);
    }
    dl_map_close(&map);
    tensors[1].dtype = "BF16";
    CHECK_STATUS(DILOCO_EREFUSED, dl_export_npz.write(&e));
    CHECK_CONTAINS("steps is of type BF16", diloco_error_text());
}

/* ---- gguf */

#define HEAD_DIM "parameters.model.head_dim"
#define ROPE     "parameters.model.rope_scaling"

typedef struct gguf_tensor {
    char name[96];
    uint64_t shape[2], type, offset;
} gguf_tensor;

static const unsigned char *read_string(char out[96], const unsigned char *p)
{
    size_t len = u_at(p, 8);
    CHECK(len < 96);
    memcpy(out, p + 8, len);
    out[len] = '\0';
    return p + 8 + len;
}

/* The place after a value of a type: arrays (9) are of numbers or of strings (8); 7 is one byte. */
static const unsigned char *skip_value(const unsigned char *p, uint64_t type)
{
    if (type == 8) return p + 8 + u_at(p, 8);
    if (type != 9) return p + (type == 7 ? 1 : 4);
    uint64_t n = u_at(p + 4, 8);
    type = u_at(p, 4);
    p += 12;
    for (uint64_t i = 0; i < n; i++)
        p = skip_value(p, type);
    return p;
}

/* The value under a key among n, or the place after them. */
static const unsigned char *find_value(const unsigned char *p, uint64_t n, const char *wanted,
                                       uint64_t *type)
{
    for (uint64_t i = 0; i < n; i++) {
        char key[96];
        p = read_string(key, p);
        *type = u_at(p, 4);
        CHECK(*type >= 4 && *type <= 9);
        if (wanted && strcmp(key, wanted) == 0) return p + 4;
        p = skip_value(p + 4, *type);
    }
    CHECK(wanted == NULL);
    return p;
}

static const unsigned char *read_tensor(gguf_tensor *t, const unsigned char *p)
{
    p = read_string(t->name, p);
    uint64_t n = u_at(p, 4);
    CHECK(n == 1 || n == 2);
    t->shape[0] = u_at(p + 4, 8);
    t->shape[1] = n == 2 ? u_at(p + 12, 8) : 1;
    p += 4 + 8 * n;
    t->type = u_at(p, 4);
    t->offset = u_at(p + 4, 8);
    return p + 12;
}

TEST(gguf_has_the_tensors_under_its_own_names)
{
    dl_map map;
    dl_st theta;
    void *bytes;
    gguf_tensor tensors[12];
    uint64_t type;
    size_t n;
    CHECK_OK(dl_map_open(&map, exported("gguf", "f16", "out.gguf")));
    CHECK_BYTES("GGUF", map.data, 4);
    CHECK_INT(3, u_at(map.data + 4, 4));
    CHECK_INT(12, u_at(map.data + 8, 8));
    const unsigned char *p = find_value(map.data + 24, u_at(map.data + 16, 8), NULL, &type);
    for (int i = 0; i < 12; i++)
        p = read_tensor(&tensors[i], p);
    const unsigned char *data = map.data + ((size_t)(p - map.data) + 31) / 32 * 32;
    open_theta(&theta, &bytes);
    int seen = 0;
    for (int i = 0; i < 12; i++) {
        const gguf_tensor *t = &tensors[i];
        if (strcmp(t->name, "blk.0.attn_norm.weight") == 0) { /* a vector: wide */
            float *own = values_of(&theta, "model.layers.0.input_layernorm.weight", &n);
            CHECK_INT(0, t->type);
            CHECK_INT(16, t->shape[0]);
            CHECK_BYTES(own, data + t->offset, n * sizeof *own);
            free(own);
            seen++;
        }
        if (strcmp(t->name, "blk.0.attn_k.weight") == 0) { /* 2 heads of 4 rows: 0 2 1 3, 4 6 5 7 */
            static const size_t rows[] = {0, 2, 1, 3, 4, 6, 5, 7};
            float *own = values_of(&theta, "model.layers.0.self_attn.k_proj.weight", &n);
            unsigned char row[2 * 16];
            CHECK_INT(1, t->type);
            CHECK_INT(16, t->shape[0]);
            CHECK_INT(8, t->shape[1]);
            for (size_t r = 0; r < 8; r++) {
                dl_narrow(row, own + 16 * rows[r], 16, "F16");
                CHECK_BYTES(row, data + t->offset + r * sizeof row, sizeof row);
            }
            free(own);
            seen++;
        }
    }
    CHECK_INT(2, seen);
    dl_st_close(&theta);
    dl_map_close(&map);
    diloco_free(bytes);
}

/* A model of given options, untrained, as gguf. */
static diloco_status gguf_of(dl_map *map, const char *const *options)
{
    static int n;
    char name[32];
    diloco_export_report report;
    dl_config *config = fixture_config("diloco");
    for (; *options; options += 2)
        set(config, options[0], options[1]);
    CHECK_OK(diloco_train_create(config));
    snprintf(name, sizeof name, "options-%d.gguf", n++);
    const char *path = scratch_path(name);
    diloco_status status = diloco_export(&report, config, "gguf", "f32", path);
    free(config);
    return status ? status : dl_map_open(map, path);
}

static float f32_at(const unsigned char *p)
{
    float x;
    memcpy(&x, p, sizeof x);
    return x;
}

TEST(gguf_has_wide_heads_and_slowed_positions)
{
    dl_map map;
    uint64_t type;
    gguf_tensor t;
    CHECK_OK(gguf_of(&map, (const char *const[]){"parameters.model.heads", "2", HEAD_DIM, "12",
                                                 ROPE, "llama3", NULL}));
    const unsigned char *values = map.data + 24;
    uint64_t n = u_at(map.data + 16, 8), n_tensors = u_at(map.data + 8, 8);
    CHECK_INT(12, u_at(find_value(values, n, "llama.attention.key_length", &type), 4));
    CHECK_INT(12, u_at(find_value(values, n, "llama.attention.value_length", &type), 4));
    CHECK_INT(12, u_at(find_value(values, n, "llama.rope.dimension_count", &type), 4));
    const unsigned char *p = find_value(values, n, NULL, &type);
    for (uint64_t i = 0; i < n_tensors; i++)
        p = read_tensor(&t, p);
    CHECK_STR("rope_freqs.weight", t.name); /* the last */
    CHECK_INT(6, t.shape[0]);
    CHECK_INT(0, t.type);
    const unsigned char *data = map.data + ((size_t)(p - map.data) + 31) / 32 * 32 + t.offset;
    CHECK(f32_at(data) == 1); /* the fastest pair is as it was, the slowest slower by the factor */
    CHECK(f32_at(data + 20) > 1 && f32_at(data + 20) <= 8);
    dl_map_close(&map);
    CHECK_OK(gguf_of(&map, (const char *const[]){ROPE, "linear", NULL}));
    values = map.data + 24, n = u_at(map.data + 16, 8);
    p = find_value(values, n, "llama.rope.scaling.type", &type);
    CHECK_BYTES("linear", p + 8, 6);
    CHECK(f32_at(find_value(values, n, "llama.rope.scaling.factor", &type)) == 8);
    dl_map_close(&map);
    CHECK_STATUS(DILOCO_EREFUSED,
                 gguf_of(&map, (const char *const[]){"parameters.model.qk_norm", "true", ROPE,
                                                     "llama3", NULL}));
    CHECK_CONTAINS("gguf's qwen3 has no place for it", diloco_error_text());
}

/* The output of dl_gguf_tokenizer for a configuration. */
typedef struct spoken {
    dl_gguf gguf;
    dl_config *config;
} spoken;

static diloco_status speak(spoken *s, const char *tokenizer_json, size_t vocab)
{
    *s = (spoken){.config = fixture_config("diloco")};
    dl_export e = {.config = s->config};
    dl_pieces_init(&s->gguf.pieces);
    if (tokenizer_json) {
        dl_bpe *bpe;
        set(s->config, "data.tokenizer", "bpe");
        set(s->config, "data.tokenizer_path",
            scratch_write("tok.json", tokenizer_json, strlen(tokenizer_json)));
        CHECK_OK(dl_bpe_open(&bpe, s->config->tokenizer_path));
        dl_hash_to_hex(s->config->tokenizer_digest, dl_bpe_digest(bpe));
        dl_bpe_close(bpe);
    }
    return dl_gguf_tokenizer(&s->gguf, &e, vocab);
}

static void hush(spoken *s)
{
    dl_pieces_deinit(&s->gguf.pieces);
    free(s->config);
}

static const unsigned char *value_of(const spoken *s, const char *key, uint64_t type)
{
    char name[96];
    uint64_t found;
    snprintf(name, sizeof name, "tokenizer.ggml.%s", key);
    const unsigned char *p = find_value(s->gguf.pieces.small.data, s->gguf.n_values, name, &found);
    CHECK_INT(type, found);
    return p;
}

static void check_string(const char *expected, const unsigned char *p)
{
    char text[96];
    read_string(text, p);
    CHECK_STR(expected, text);
}

/* Element i of an array. */
static const unsigned char *element(const unsigned char *p, uint64_t i)
{
    uint64_t type = u_at(p, 4);
    CHECK(i < u_at(p + 4, 8));
    p += 12;
    for (uint64_t k = 0; k < i; k++)
        p = skip_value(p, type);
    return p;
}

/* A tokenizer of the end token, the bytes and " a", with one piece of its file
 * replaced. */
static char *small_tokenizer(dl_word_rule how, const char *from, const char *to)
{
    static const dl_text text = {"b a a", 5};
    dl_buf json, changed;
    dl_bpe_trained report;
    dl_buf_init(&json, 1 << 20);
    dl_buf_init(&changed, 1 << 20);
    CHECK_OK(dl_bpe_train(&json, &report, &text, 1, how, 1000));
    const char *at = dl_buf_str(&json);
    for (const char *next; *from && (next = strstr(at, from)); at = next + strlen(from)) {
        CHECK_OK(dl_buf_add(&changed, at, (size_t)(next - at)));
        CHECK_OK(dl_buf_add(&changed, to, strlen(to)));
    }
    CHECK(!*from || changed.len);
    CHECK_OK(dl_buf_add(&changed, at, strlen(at)));
    char *out = strdup(dl_buf_str(&changed));
    dl_buf_deinit(&json);
    dl_buf_deinit(&changed);
    return out;
}

TEST(gguf_has_the_tokenizer)
{
    spoken s;
    char *json = small_tokenizer(DL_WORD_RULE_GPT2, "", "");
    CHECK_OK(speak(&s, json, 260));
    check_string("gpt2", value_of(&s, "model", 8));
    check_string("gpt-2", value_of(&s, "pre", 8));
    const unsigned char *tokens = value_of(&s, "tokens", 9), *types = value_of(&s, "token_type", 9),
                        *merges = value_of(&s, "merges", 9);
    CHECK_INT(260, u_at(tokens + 4, 8));
    CHECK_INT(260, u_at(types + 4, 8));
    CHECK_INT(1, u_at(merges + 4, 8));
    check_string("<|endoftext|>", element(tokens, 0));
    check_string("!", element(tokens, 1));
    check_string("\xc4\xa0"
                 "a",
                 element(tokens, 257));
    check_string("[PAD258]", element(tokens, 258));
    check_string("\xc4\xa0 a", element(merges, 0));
    CHECK_INT(3, u_at(element(types, 0), 4));
    CHECK_INT(1, u_at(element(types, 257), 4));
    CHECK_INT(5, u_at(element(types, 259), 4));
    CHECK_INT(0, u_at(value_of(&s, "bos_token_id", 4), 4));
    CHECK_INT(0, u_at(value_of(&s, "eos_token_id", 4), 4));
    CHECK_INT(0, u_at(value_of(&s, "add_bos_token", 7), 1));
    hush(&s);
    free(json);
}

TEST(gguf_says_how_text_is_cut_and_begins)
{
    static const struct {
        const char *from, *to, *pre;
        bool begins;
    } rows[] = {
        {"", "", "dbrx", false},
        {"\"ignore_merges\":false", "\"ignore_merges\":true", "llama-bpe", false},
        {"\"post_processor\":null",
         "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":"
         "{\"id\":\"<|endoftext|>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\"}}]}",
         "dbrx", true}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        spoken s;
        char *json = small_tokenizer(DL_WORD_RULE_CL100K, rows[i].from, rows[i].to);
        CHECK_OK(speak(&s, json, 260));
        check_string(rows[i].pre, value_of(&s, "pre", 8));
        CHECK_INT(rows[i].begins, u_at(value_of(&s, "add_bos_token", 7), 1));
        hush(&s);
        free(json);
    }
}

TEST(a_run_over_bytes_says_so_in_gguf)
{
    spoken s;
    CHECK_OK(speak(&s, NULL, 300));
    const unsigned char *tokens = value_of(&s, "tokens", 9), *types = value_of(&s, "token_type", 9);
    CHECK_INT(300, u_at(tokens + 4, 8));
    check_string("\xc4\x80", element(tokens, 0)); /* U+0100 */
    check_string("A", element(tokens, 'A'));
    check_string("\xc3\xbf", element(tokens, 255));
    check_string("[PAD256]", element(tokens, 256));
    CHECK_INT(1, u_at(element(types, 255), 4));
    CHECK_INT(5, u_at(element(types, 256), 4));
    CHECK_INT(0, u_at(value_of(&s, "merges", 9) + 4, 8));
    CHECK_INT(0, u_at(value_of(&s, "eos_token_id", 4), 4));
    set(s.config, "data.datasource", "tokens"); /* numbers without a known tokenizer */
    dl_export e = {.config = s.config};
    dl_gguf none = {.n_values = 0};
    dl_pieces_init(&none.pieces);
    CHECK_OK(dl_gguf_tokenizer(&none, &e, 300));
    CHECK_INT(1, none.n_values);
    dl_pieces_deinit(&none.pieces);
    hush(&s);
}

TEST(gguf_refuses_a_tokenizer_that_would_be_read_as_another)
{
    static const char *const rows[][3] = {
        {"\"<|endoftext|>\"", "\"<end>\"", "no token that ends a text"},
        {"\"ignore_merges\":false", "\"ignore_merges\":true",
         "cuts text as GPT-2 and takes whole"}};
    for (size_t i = 0; i < 2; i++) {
        spoken s;
        char *json = small_tokenizer(DL_WORD_RULE_GPT2, rows[i][0], rows[i][1]);
        CHECK_STATUS(DILOCO_EREFUSED, speak(&s, json, 260));
        CHECK_CONTAINS(rows[i][2], diloco_error_text());
        hush(&s);
        free(json);
    }
    spoken s;
    CHECK_OK(speak(&s, NULL, 256));
    set(s.config, "data.tokenizer", "bpe");
    dl_export e = {.config = s.config};
    CHECK_STATUS(DILOCO_EINVAL, dl_gguf_tokenizer(&s.gguf, &e, 256));
    CHECK_CONTAINS("add --set data.tokenizer_path=FILE", diloco_error_text());
    hush(&s);
}

/* ---- refusals */

static void refused(diloco_status status, const char *part, const dl_config *config,
                    const char *format, const char *dtype)
{
    diloco_export_report report;
    const char *path = scratch_path("refused");
    CHECK_STATUS(status, diloco_export(&report, config, format, dtype, path));
    CHECK_CONTAINS(part, diloco_error_text());
    CHECK(!dl_file_exists(path));
}

TEST(values_that_a_format_cannot_hold_are_refused)
{
    refused(DILOCO_EINVAL, "there is no format onnx", trained(), "onnx", "f32");
    refused(DILOCO_EINVAL, "dtype f64 is unknown", trained(), "hf", "f64");
    refused(DILOCO_EREFUSED, "npz files have no bf16", trained(), "npz", "bf16");
    dl_config *none = fixture_config("diloco");
    refused(DILOCO_ENOENT, none->store, none, "hf", "f32");
    free(none);
}

TEST(formats_are_listed)
{
    CHECK_STR("hf", diloco_export_format_at(0));
    CHECK_STR("npz", diloco_export_format_at(1));
    CHECK_STR("gguf", diloco_export_format_at(2));
    CHECK_STR("peft", diloco_export_format_at(3));
    CHECK(diloco_export_format_at(4) == NULL);
}

TEST_MAIN(a_model_goes_out_and_comes_in_again_to_the_bit, bf16_and_f16_round_once,
          npz_is_a_zip_file_of_arrays, npz_has_the_types_of_buffers_too,
          gguf_has_the_tensors_under_its_own_names, gguf_has_wide_heads_and_slowed_positions,
          gguf_has_the_tokenizer, gguf_says_how_text_is_cut_and_begins,
          a_run_over_bytes_says_so_in_gguf, gguf_refuses_a_tokenizer_that_would_be_read_as_another,
          values_that_a_format_cannot_hold_are_refused, formats_are_listed)
