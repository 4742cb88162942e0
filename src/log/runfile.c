/* runfile.c - reads seal, options, manifest and digests, in this order. The digests in the file
 * (config_digest, manifest_digest) must be those of its content. So a program with another option
 * table or layout fails here, and not later with a wrong result. */
#include "log/runfile.h"

#include "log/fields.h"

#include <stdlib.h>
#include <string.h>

static const char format[] = "diloco-run";
enum {
    VALUE_MAX = DL_PATH_MAX + 64,
    MAX_LINES = 8
}; /* bytes of an option's text; lines of a report */

void dl_runfile_deinit(dl_runfile *file)
{
    dl_manifest_deinit(&file->manifest);
    dl_identity_deinit(&file->identity);
    dl_base_deinit(&file->base);
    *file = (dl_runfile){0};
}

/* ---- writing */

/* Every AGREE option is written, also at its default: a later program may have another default. */
static void write_options(dl_json *j, const dl_config *config)
{
    dl_buf value;
    dl_buf_init(&value, VALUE_MAX);
    dl_json_object(j, "options");
    for (size_t i = 0; i < dl_config_table.n && !j->status; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        if (!(row->flags & DL_OPTION_AGREE)) continue;
        dl_buf_clear(&value);
        j->status = dl_option_text(&value, row, config);
        if (!j->status) dl_json_strn(j, row->name, (const char *)value.data, value.len);
    }
    dl_json_end(j);
    dl_buf_deinit(&value);
}

diloco_status dl_runfile_write(dl_buf *out, const dl_runfile *file)
{
    DL_ASSERT(dl_run_id_ok(file->id));
    dl_json j;
    size_t start;
    dl_sealed_begin(&j, &start, out, format);
    dl_json_str(&j, "run", file->id);
    dl_json_str(&j, "program", file->program);
    if (*file->creator) dl_json_str(&j, "creator", file->creator);
    dl_json_hash(&j, "config_digest", file->config_digest);
    dl_json_hash(&j, "manifest_digest", file->manifest.digest);
    dl_json_hash(&j, "theta0", file->theta0);
    dl_json_hash(&j, "theta0_file", file->theta0_file);
    dl_json_str(&j, "data_digest", file->data_digest);
    write_options(&j, &file->config);
    dl_manifest_write(&j, "tensors", &file->manifest);
    dl_base_write(&j, &file->base);
    dl_identity_write(&j, &file->identity);
    return dl_sealed_end(&j, start);
}

/* ---- reading */

/* Finds an option of the AGREE kind by its name, not by an alias, or returns NULL. */
static const dl_option *find_agreed(const char *name)
{
    const dl_option *row = dl_option_find(dl_config_table, name);
    return row && strcmp(row->name, name) == 0 && row->flags & DL_OPTION_AGREE ? row : NULL;
}

/* An option that is unknown here may change the result, so the run is refused. */
static diloco_status read_option(dl_runfile *out, dl_json_value options, dl_json_value key)
{
    char name[128], value[VALUE_MAX];
    DL_TRY(dl_json_as_str(name, sizeof name, key));
    DL_TRY(dl_json_read_str(value, sizeof value, options, name));
    if (!find_agreed(name))
        return dl_fail(DILOCO_EDIFFERS,
                       "the run was begun by diloco %s with option %s, which this program (%s) "
                       "does not have",
                       out->program, name, DILOCO_VERSION);
    return dl_config_set(&out->config, name, value, "run") ? DILOCO_EPROTO : DILOCO_OK;
}

/* Both directions are checked: unknown options in the file, and options of this program that the
 * file lacks. */
static diloco_status read_options(dl_runfile *out, dl_json_value options)
{
    if (options.type != DL_JSON_OBJECT)
        return dl_fail(DILOCO_EPROTO, "\"options\" is not an object");
    for (dl_json_iter it = dl_json_each(options); dl_json_next(&it);)
        DL_TRY(read_option(out, options, it.key));
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        if (!(row->flags & DL_OPTION_AGREE) || dl_config_given(&out->config, row->name)) continue;
        return dl_fail(DILOCO_EDIFFERS,
                       "the run was begun by diloco %s, which has no option %s; this program is %s",
                       out->program, row->name, DILOCO_VERSION);
    }
    return DILOCO_OK;
}

/* Checks that the digest under `key` is the computed one. */
static diloco_status check_digest(dl_json_value object, const char *key, dl_hash computed)
{
    dl_hash stored;
    DL_TRY(dl_json_read_hash(&stored, object, key));
    if (dl_hash_equal(stored, computed)) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO, "\"%s\" is not the digest of what the file says", key);
}

dl_statement dl_runfile_statement(const dl_runfile *file)
{
    return (dl_statement){.kind = "run", .run = file->id};
}

dl_entry_place dl_runfile_place(const dl_runfile *file, uint64_t entry)
{
    return (dl_entry_place){.run = file->id,
                            .number = entry,
                            .outer = dl_outer_of(&file->config),
                            .identity = &file->identity};
}

/* The owner's key is in the file that it signs. That proves only that the file is whole; an
 * invitation says which owner is meant (keyring.c). */
static diloco_status read_identity(dl_runfile *out, dl_json_value root, const void *text,
                                   size_t len)
{
    dl_public signer;
    const dl_statement what = dl_runfile_statement(out);
    DL_TRY(dl_identity_read(&out->identity, root));
    if (out->identity.policy == DL_TRUSTED) return DILOCO_OK;
    DL_TRY(dl_sealed_signer(&signer, text, len, &what));
    if (!dl_public_equal(&signer, &out->identity.owner))
        return dl_fail(DILOCO_EPROTO, "it is signed with another key than its owner's");
    return dl_config_set(&out->config, "run.roster", dl_policy_names[out->identity.policy], "run");
}

/* A run that an earlier program created has no creator. The name reaches error texts, hence the
 * check. */
static diloco_status read_creator(dl_runfile *out, dl_json_value root)
{
    if (dl_json_get(root, "creator").type == DL_JSON_MISSING) return DILOCO_OK;
    DL_TRY(dl_json_read_str(out->creator, sizeof out->creator, root, "creator"));
    if (dl_replica_name_ok(out->creator)) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO, "\"creator\" is no name of a replica");
}

/* config_digest is computed from the values as this program understands them. A difference means
 * that its option table reads them otherwise. */
static diloco_status read_all(dl_runfile *out, const void *text, size_t len)
{
    dl_json_value root;
    DL_TRY(dl_sealed_open(&root, text, len, format));
    DL_TRY(dl_json_read_run(out->id, root));
    DL_TRY(dl_json_read_str(out->program, sizeof out->program, root, "program"));
    DL_TRY(read_creator(out, root));
    DL_TRY(dl_json_read_hash(&out->theta0, root, "theta0"));
    DL_TRY(dl_json_read_hash(&out->theta0_file, root, "theta0_file"));
    DL_TRY(dl_json_read_str(out->data_digest, sizeof out->data_digest, root, "data_digest"));

    DL_TRY(read_options(out, dl_json_get(root, "options")));
    DL_TRY(dl_options_digest(&out->config_digest, dl_config_table, &out->config));
    DL_TRY(check_digest(root, "config_digest", out->config_digest));

    DL_TRY(read_identity(out, root, text, len));
    bool all_floating = out->config.apply_to == DL_APPLY_ALL_FLOATING;
    DL_TRY(dl_manifest_read(&out->manifest, dl_json_get(root, "tensors"), all_floating));
    DL_TRY(check_digest(root, "manifest_digest", out->manifest.digest));
    return dl_base_read(&out->base, dl_json_get(root, "base"));
}

/* After an error *out is empty, and nothing has to be released. */
diloco_status dl_runfile_read(dl_runfile *out, const void *text, size_t len)
{
    memset(out, 0, sizeof *out);
    dl_config_init(&out->config);
    diloco_status status = read_all(out, text, len);
    if (!status) return DILOCO_OK;
    dl_runfile_deinit(out);
    return dl_fail_context(status, DL_KEY_RUN);
}

/* ---- agreement */

/* The differences, one line each; lines beyond MAX_LINES are only counted. */
typedef struct report {
    dl_buf text;
    size_t n_lines;
} report;

/* Both values are compared as text, as the user would write them. The line says where the local
 * value comes from. */
static diloco_status compare_option(report *r, const dl_option *row, const dl_config *run,
                                    const dl_config *here)
{
    dl_buf values;
    dl_buf_init(&values, 2 * VALUE_MAX);
    diloco_status status = dl_option_text(&values, row, run);
    if (!status) status = dl_buf_add(&values, "", 1);
    size_t second = values.len;
    if (!status) status = dl_option_text(&values, row, here);
    if (!status) status = dl_buf_add(&values, "", 1);
    const char *theirs = (const char *)values.data, *ours = theirs + second;
    if (!status && strcmp(theirs, ours) != 0 && r->n_lines++ < MAX_LINES)
        status = dl_buf_addf(&r->text, "%s%s is %s in the run, %s here (%s)",
                             r->text.len ? "\n" : "", row->name, *theirs ? theirs : "empty",
                             *ours ? ours : "empty", dl_config_origin(here, row->name));
    dl_buf_deinit(&values);
    return status;
}

static bool same_tensor(const dl_manifest_tensor *a, const dl_manifest_tensor *b)
{
    return strcmp(a->name, b->name) == 0 && a->dtype == b->dtype && a->role == b->role &&
           a->fragment == b->fragment && a->n_dims == b->n_dims &&
           memcmp(a->shape, b->shape, (size_t)a->n_dims * sizeof *a->shape) == 0;
}

static diloco_status describe(dl_buf *out, const dl_manifest_tensor *t)
{
    DL_TRY(dl_buf_addf(out, "%s %s %s [", t->name, dl_dtype_name(t->dtype), dl_role_name(t->role)));
    for (int d = 0; d < t->n_dims; d++)
        DL_TRY(dl_buf_addf(out, "%s%zu", d ? ", " : "", t->shape[d]));
    return dl_buf_addf(out, "] in fragment %d", t->fragment);
}

/* The digest decides; the tensors are compared only to name the first difference. */
static diloco_status compare_tensors(report *r, const dl_manifest *run, const dl_manifest *here,
                                     const dl_sides *sides)
{
    if (dl_hash_equal(run->digest, here->digest) || r->n_lines++ >= MAX_LINES) return DILOCO_OK;
    const char *newline = r->text.len ? "\n" : "";
    size_t i = 0, both = dl_size_min(run->n_tensors, here->n_tensors);
    while (i < both && same_tensor(&run->tensors[i], &here->tensors[i]))
        i++;
    if (i == both)
        return dl_buf_addf(&r->text, "%sthe model %s has %zu tensors, the model %s has %zu",
                           newline, sides->run, run->n_tensors, sides->here, here->n_tensors);
    DL_TRY(dl_buf_addf(&r->text, "%stensor %zu is ", newline, i));
    DL_TRY(describe(&r->text, &run->tensors[i]));
    DL_TRY(dl_buf_addf(&r->text, " %s, ", sides->run));
    DL_TRY(describe(&r->text, &here->tensors[i]));
    return dl_buf_addf(&r->text, " %s", sides->here);
}

/* Returns whether two versions are equal up to the second dot. Programs of one series compute alike
 * and write the same formats. */
static bool same_series(const char *a, const char *b)
{
    size_t n_dots = 0;
    for (; *a && *a == *b; a++, b++)
        if (*a == '.' && ++n_dots == 2) return true;
    return *a == *b;
}

static diloco_status compare_program(report *r, const dl_runfile *file)
{
    if (same_series(file->program, DILOCO_VERSION) || r->n_lines++ >= MAX_LINES) return DILOCO_OK;
    return dl_buf_addf(&r->text, "the run was begun by diloco %s, this program is %s",
                       file->program, DILOCO_VERSION);
}

/* Only options that were given here are compared; defaults give way to the run's values. run.roster
 * is no AGREE option, since run.json has it in its identity. */
static diloco_status compare_all(report *r, const dl_runfile *file, const dl_config *config,
                                 const dl_manifest *manifest, const char *replica)
{
    const dl_sides sides = dl_sides_of(file->creator, replica);
    DL_TRY(compare_program(r, file));
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        if (row->flags & DL_OPTION_AGREE && dl_config_given(config, row->name))
            DL_TRY(compare_option(r, row, &file->config, config));
    }
    const dl_option *roster = dl_option_find(dl_config_table, "run.roster");
    if (dl_config_given(config, roster->name))
        DL_TRY(compare_option(r, roster, &file->config, config));
    return compare_tensors(r, &file->manifest, manifest, &sides);
}

diloco_status dl_runfile_matches(const dl_runfile *file, const dl_config *config,
                                 const dl_manifest *manifest, const char *replica)
{
    report r = {.n_lines = 0};
    dl_buf_init(&r.text, MAX_LINES * (2 * VALUE_MAX + 512));
    diloco_status status = compare_all(&r, file, config, manifest, replica);
    if (!status && r.n_lines > MAX_LINES)
        status = dl_buf_addf(&r.text, "\nand %zu more", r.n_lines - MAX_LINES);
    if (!status && r.n_lines > 0) status = dl_fail(DILOCO_EDIFFERS, "%s", dl_buf_str(&r.text));
    dl_buf_deinit(&r.text);
    return status;
}

/* Returns the bytes of an option's field in the struct of options. */
static size_t field_size(const dl_option *row)
{
    switch (row->type) {
    case DL_OPTION_BOOL:
        return sizeof(bool);
    case DL_OPTION_INT:
        return sizeof(int64_t);
    case DL_OPTION_REAL:
        return sizeof(double);
    case DL_OPTION_TEXT:
        return (size_t)row->max + 1;
    case DL_OPTION_NAME:
        return sizeof(dl_config_name);
    case DL_OPTION_CHOICE:
        return sizeof(int);
    }
    DL_ASSERT(!"an option type");
    return 0;
}

/* The field is copied with its type, not through text, so every value stays exact. */
void dl_runfile_take(dl_config *config, const dl_runfile *file)
{
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        if (!(row->flags & DL_OPTION_AGREE)) continue;
        memcpy((char *)config + row->offset, (const char *)&file->config + row->offset,
               field_size(row));
        config->origins[i] = (dl_origin){"run"};
    }
    config->roster = file->config.roster;
}
