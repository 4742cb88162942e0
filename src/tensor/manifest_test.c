/* manifest_test.c - the layout, each refusal, and JSON there and back. */
#include "tensor/manifest.h"

#include "check.h"

/* A model with all regions in two fragments, in mixed order. */
static const diloco_tensor model[] = {
    {"norm.mean", NULL, DILOCO_F32, DILOCO_BUFFER, 1, {3}, 0},
    {"w1", NULL, DILOCO_F32, DILOCO_PARAMETER, 2, {4, 5}, 0},
    {"count", NULL, DILOCO_I64, DILOCO_BUFFER, 0, {0}, 0},
    {"w2", NULL, DILOCO_F32, DILOCO_PARAMETER, 1, {7}, 1},
    {"b1", NULL, DILOCO_F32, DILOCO_PARAMETER, 1, {5}, 0},
    {"mask", NULL, DILOCO_BOOL, DILOCO_BUFFER, 1, {6}, 1},
    {"position", NULL, DILOCO_F32, DILOCO_FROZEN, 2, {2, 2}, 0},
};
enum { N_MODEL = sizeof model / sizeof model[0] };

static dl_manifest make(bool all_floating)
{
    dl_manifest m;
    CHECK_OK(dl_manifest_init(&m, model, N_MODEL, all_floating));
    return m;
}

TEST(regions_are_laid_out_in_manifest_order_trained_first)
{
    dl_manifest m = make(false);
    CHECK_INT(2, m.n_fragments);
    CHECK_INT(25, m.fragments[0].n_trained);
    CHECK_INT(7, m.fragments[0].n_averaged);
    CHECK_INT(1, m.fragments[0].n_integers);
    CHECK_INT(0, m.fragments[0].n_booleans);
    CHECK_INT(7, m.fragments[1].n_trained);
    CHECK_INT(6, m.fragments[1].n_booleans);
    CHECK_INT(32, m.n_parameters);
    static const size_t offsets[N_MODEL] = {25, 0, 0, 0, 20, 0, 28};
    static const dl_region regions[N_MODEL] = {DL_AVERAGED, DL_TRAINED,  DL_INTEGERS, DL_TRAINED,
                                               DL_TRAINED,  DL_BOOLEANS, DL_AVERAGED};
    for (int i = 0; i < N_MODEL; i++) {
        CHECK_INT(offsets[i], m.tensors[i].offset);
        CHECK_INT(regions[i], m.tensors[i].region);
    }
    CHECK_INT(1, m.tensors[2].count); /* no dimensions: a scalar */
    dl_manifest_deinit(&m);
}

TEST(all_floating_trains_every_f32_tensor)
{
    dl_manifest m = make(true);
    CHECK_INT(32, m.fragments[0].n_trained);
    CHECK_INT(0, m.fragments[0].n_averaged);
    CHECK_INT(0, m.tensors[0].offset);
    CHECK_INT(3, m.tensors[1].offset);
    CHECK_INT(32, m.n_parameters); /* a parameter stays a parameter */
    dl_manifest_deinit(&m);
}

TEST(an_element_of_the_f32_array_is_found_in_its_tensor)
{
    dl_manifest m = make(false);
    size_t index;
    CHECK_STR("w1", dl_manifest_locate(&m, 0, 19, &index)->name);
    CHECK_INT(19, index);
    CHECK_STR("b1", dl_manifest_locate(&m, 0, 20, &index)->name);
    CHECK_INT(0, index);
    CHECK_STR("norm.mean", dl_manifest_locate(&m, 0, 27, &index)->name);
    CHECK_INT(2, index);
    CHECK_STR("position", dl_manifest_locate(&m, 0, 31, &index)->name);
    CHECK_STR("w2", dl_manifest_locate(&m, 1, 6, &index)->name);
    dl_manifest_deinit(&m);
}

static void refused(const diloco_tensor *tensors, size_t n, const char *why)
{
    dl_manifest m;
    CHECK_STATUS(DILOCO_EINVAL, dl_manifest_init(&m, tensors, n, false));
    CHECK_CONTAINS(why, diloco_error_text());
    CHECK(!m.tensors && !m.fragments && m.n_tensors == 0);
}

static void refused_one(diloco_tensor tensor, const char *why)
{
    refused(&tensor, 1, why);
}

TEST(an_invalid_tensor_is_refused)
{
    static char long_name[DILOCO_NAME_MAX + 2];
    memset(long_name, 'x', DILOCO_NAME_MAX + 1);
    diloco_tensor good = {.name = "w", .n_dims = 1, .shape = {4}}, t;
    refused(&good, 0, "0 tensors");
    refused(&good, DL_MAX_TENSORS + 1, "65537 tensors");
    t = good, t.name = NULL, refused_one(t, "no name");
    t = good, t.name = "", refused_one(t, "1 to 127 characters");
    t = good, t.name = long_name, refused_one(t, "has 128");
    t = good, t.name = "a\nb", refused_one(t, "not printable");
    t = good, t.name = "\xc3\xa4", refused_one(t, "not printable");
    t = good, t.dtype = (diloco_dtype)5, refused_one(t, "dtype");
    t = good, t.role = (diloco_role)-1, refused_one(t, "role");
    t = good, t.dtype = DILOCO_I64, refused_one(t, "a parameter is F32, BF16 or F16");
    t = good, t.n_dims = 5, refused_one(t, "5 dimensions");
    t = good, t.n_dims = -1, refused_one(t, "-1 dimensions");
    t = good, t.shape[0] = 0, refused_one(t, "no tensors with elements");
    t = good, t.fragment = -1, refused_one(t, "fragment -1");
    t = good, t.fragment = DL_MAX_FRAGMENTS, refused_one(t, "fragment 4096");
    t = good, t.fragment = 1, refused_one(t, "fragment 0 of 2 has no tensors");
    t = (diloco_tensor){.name = "w", .n_dims = 2, .shape = {SIZE_MAX, 2}};
    refused_one(t, "too large");
    t.shape[0] = t.shape[1] = (size_t)1 << 21;
    refused_one(t, "too large");
}

TEST(tensors_of_one_name_or_of_too_many_elements_together_are_refused)
{
    diloco_tensor two[2] = {{.name = "w", .n_dims = 1, .shape = {4}},
                            {.name = "w", .n_dims = 1, .shape = {5}}};
    refused(two, 2, "two tensors are named w");
    two[1].name = "v";
    two[0].shape[0] = two[1].shape[0] = ((size_t)1 << 39) + 1;
    refused(two, 2, "more than 2^40");
    two[1].role = DILOCO_FROZEN; /* another region of the same array */
    refused(two, 2, "more than 2^40");
}

TEST(the_digest_covers_names_types_shapes_roles_fragments_and_order)
{
    dl_manifest m = make(false), other = make(true);
    CHECK(dl_hash_equal(m.digest, other.digest)); /* a matter of options, not of the model */
    dl_manifest_deinit(&other);
    for (int change = 0; change < 6; change++) {
        diloco_tensor t[N_MODEL];
        memcpy(t, model, sizeof model);
        if (change == 0) t[1].name = "w9";
        if (change == 1) t[0].role = DILOCO_FROZEN;
        if (change == 2) t[1].shape[0] = 5, t[1].shape[1] = 4;
        if (change == 3) t[4].fragment = 1;
        if (change == 4) t[5].dtype = DILOCO_I64;
        if (change == 5) t[3] = model[4], t[4] = model[3];
        CHECK_OK(dl_manifest_init(&other, t, N_MODEL, false));
        CHECK(!dl_hash_equal(m.digest, other.digest));
        dl_manifest_deinit(&other);
    }
    dl_manifest_deinit(&m);
}

/* The manifest in `text` (an object with the array as "tensors"), or its refusal. */
static diloco_status read_text(dl_manifest *out, const char *text)
{
    dl_json_value value;
    CHECK_OK(dl_json_parse(&value, text, strlen(text)));
    return dl_manifest_read(out, dl_json_get(value, "tensors"), false);
}

TEST(json_gives_the_same_manifest_back)
{
    dl_manifest m = make(false), again;
    dl_buf buf;
    dl_json j;
    dl_buf_init(&buf, 1 << 16);
    dl_json_init(&j, &buf);
    dl_json_object(&j, NULL);
    dl_manifest_write(&j, "tensors", &m);
    dl_json_end(&j);
    CHECK_OK(dl_json_done(&j));
    CHECK_CONTAINS("{\"name\":\"w1\",\"dtype\":\"F32\",\"role\":\"parameter\",\"shape\":[4,5],"
                   "\"fragment\":0}",
                   dl_buf_str(&buf));
    CHECK_OK(read_text(&again, dl_buf_str(&buf)));
    CHECK(dl_hash_equal(m.digest, again.digest));
    CHECK_INT(m.n_tensors, again.n_tensors);
    CHECK_BYTES(m.tensors, again.tensors, m.n_tensors * sizeof *m.tensors);
    dl_manifest_deinit(&m);
    dl_manifest_deinit(&again);
    dl_buf_deinit(&buf);
}

#define ONE(name, dtype, role, shape, fragment)                                                    \
    "{\"tensors\":[{\"name\":" name ",\"dtype\":" dtype ",\"role\":" role ",\"shape\":" shape      \
    ",\"fragment\":" fragment "}]}"

TEST(untrusted_json_is_refused_as_such)
{
    static const char *const bad[] = {
        "{}",
        "{\"tensors\":7}",
        "{\"tensors\":[]}",
        "{\"tensors\":[1]}",
        "{\"tensors\":[{}]}",
        ONE("3", "\"F32\"", "\"parameter\"", "[1]", "0"),
        ONE("\"\"", "\"F32\"", "\"parameter\"", "[1]", "0"),
        ONE("\"w\"", "\"F64\"", "\"parameter\"", "[1]", "0"),
        ONE("\"w\"", "\"F32\"", "\"weight\"", "[1]", "0"),
        ONE("\"w\"", "\"I64\"", "\"parameter\"", "[1]", "0"),
        ONE("\"w\"", "\"F32\"", "\"parameter\"", "1", "0"),
        ONE("\"w\"", "\"F32\"", "\"parameter\"", "[-1]", "0"),
        ONE("\"w\"", "\"F32\"", "\"parameter\"", "[1.5]", "0"),
        ONE("\"w\"", "\"F32\"", "\"parameter\"", "[1,1,1,1,1]", "0"),
        ONE("\"w\"", "\"F32\"", "\"parameter\"", "[99999999999999]", "0"),
        ONE("\"w\"", "\"F32\"", "\"parameter\"", "[1]", "1"),
        ONE("\"w\"", "\"F32\"", "\"parameter\"", "[1]", "4096"),
    };
    dl_manifest m;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_STATUS(DILOCO_EPROTO, read_text(&m, bad[i]));
        CHECK(!m.tensors && !m.fragments);
    }
    CHECK_OK(read_text(&m, ONE("\"w\"", "\"F32\"", "\"parameter\"", "[1]", "0")));
    dl_manifest_deinit(&m);
}

TEST(names_and_sizes_of_types_are_those_of_safetensors)
{
    CHECK_STR("F32", dl_dtype_name(DILOCO_F32));
    CHECK_STR("I64", dl_dtype_name(DILOCO_I64));
    CHECK_STR("BOOL", dl_dtype_name(DILOCO_BOOL));
    CHECK_STR("BF16", dl_dtype_name(DILOCO_BF16));
    CHECK_STR("F16", dl_dtype_name(DILOCO_F16));
    CHECK_INT(2, dl_dtype_size(DILOCO_BF16));
    CHECK_INT(2, dl_dtype_size(DILOCO_F16));
    CHECK_INT(DILOCO_F32, dl_dtype_stored(DILOCO_BF16));
    CHECK_INT(DILOCO_F32, dl_dtype_stored(DILOCO_F16));
    CHECK_INT(DILOCO_I64, dl_dtype_stored(DILOCO_I64));
    CHECK_INT(4, dl_dtype_size(DILOCO_F32));
    CHECK_INT(8, dl_dtype_size(DILOCO_I64));
    CHECK_INT(1, dl_dtype_size(DILOCO_BOOL));
    CHECK_STR("frozen", dl_role_name(DILOCO_FROZEN));
}

TEST_MAIN(regions_are_laid_out_in_manifest_order_trained_first,
          all_floating_trains_every_f32_tensor, an_element_of_the_f32_array_is_found_in_its_tensor,
          an_invalid_tensor_is_refused,
          tensors_of_one_name_or_of_too_many_elements_together_are_refused,
          the_digest_covers_names_types_shapes_roles_fragments_and_order,
          json_gives_the_same_manifest_back, untrusted_json_is_refused_as_such,
          names_and_sizes_of_types_are_those_of_safetensors)
