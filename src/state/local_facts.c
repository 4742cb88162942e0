/* local_facts.c - the facts of the local state, as JSON inside its file's metadata. */
#include "state/local_facts.h"

#include "log/fields.h"

#include <stdio.h>
#include <string.h>

/* One object for each fragment, in their order: training since the base, and where its local part
 * was the shared one. */
static void write_fragments(dl_json *j, const dl_local_facts *f)
{
    dl_json_array(j, "fragments");
    for (size_t i = 0; i < f->n_fragments; i++) {
        const dl_local_fragment *p = &f->fragments[i];
        dl_json_object(j, NULL);
        dl_json_u64(j, "steps", p->stats.steps);
        dl_json_u64(j, "samples", p->stats.samples);
        dl_json_u64(j, "tokens", p->stats.tokens);
        dl_json_u64(j, "first_sample", p->stats.first_sample);
        dl_json_f64(j, "loss_sum", p->loss_sum);
        dl_json_hash(j, "base", p->base);
        dl_json_u64(j, "since", f->pace.fragments[i].since);
        dl_json_bool(j, "behind", f->pace.fragments[i].behind);
        dl_json_end(j);
    }
    dl_json_end(j);
}

/* `under_way` has one object for each contribution in flight, in the order of entries. Weights are
 * bit patterns, so a resume has the same bits. */
static void write_pace(dl_json *j, const dl_pace_saved *p)
{
    dl_json_u64(j, "position", p->position);
    dl_json_u64(j, "entry", p->applied);
    dl_json_u64(j, "next_adopt", p->next_adopt);
    dl_json_u64(j, "n_taken", p->n_captured);
    dl_json_u64(j, "base_entry", p->base);
    dl_json_f32_bits(j, "weight", p->weight);
    dl_json_array(j, "under_way");
    for (uint64_t e = p->next_adopt; e < p->n_captured; e++) {
        const dl_pace_capture *t = &p->captures[e - p->next_adopt];
        dl_json_object(j, NULL);
        dl_json_u64(j, "position", t->position);
        dl_json_u64(j, "fragment", t->fragment);
        dl_json_bool(j, "mute", t->mute);
        dl_json_bool(j, "commit", t->commit);
        dl_json_bool(j, "counted", t->counted);
        dl_json_end(j);
    }
    dl_json_end(j);
}

static void write_formers(dl_json *j, const dl_former_generations *formers)
{
    dl_json_array(j, "formers");
    for (size_t i = 0; i < formers->n; i++) {
        dl_json_object(j, NULL);
        dl_json_u64(j, "generation", formers->at[i]);
        dl_json_end(j);
    }
    dl_json_end(j);
}

/* A new fact is a member here and a read in dl_local_facts_read. Files of earlier versions lack it,
 * so the reader must accept that or the version must change. */
diloco_status dl_local_facts_write(dl_buf *out, const dl_local_facts *f)
{
    dl_json j;
    dl_buf_clear(out);
    dl_json_init(&j, out);
    dl_json_object(&j, NULL);
    dl_json_str(&j, "run", f->run);
    dl_json_str(&j, "replica", f->replica);
    if (f->generation != DL_GENERATION_ANY) dl_json_u64(&j, "generation", f->generation);
    if (f->formers.n) write_formers(&j, &f->formers);
    write_pace(&j, &f->pace);
    dl_json_u64(&j, "step", f->step);
    dl_json_u64(&j, "shard", f->shard);
    dl_json_u64(&j, "next_sample", f->next_sample);
    write_fragments(&j, f);
    dl_json_hash(&j, "manifest_digest", f->manifest);
    dl_json_str(&j, "isa", f->isa);
    if (strcmp(f->device, "cpu") != 0) dl_json_str(&j, "device", f->device);
    dl_json_u64(&j, "threads", f->threads);
    dl_json_str(&j, "program", f->program);
    dl_json_end(&j);
    return dl_json_done(&j);
}

/* The arrays are the caller's, with the run's number of fragments, so that number is compared
 * first. */
static diloco_status read_fragments(dl_local_facts *f, dl_json_value array)
{
    if (dl_json_count(array) != f->n_fragments)
        return dl_fail(DILOCO_EDIFFERS, "local state was saved with %zu fragments, the run has %zu",
                       dl_json_count(array), f->n_fragments);
    for (dl_json_iter it = dl_json_each(array); dl_json_next(&it);) {
        dl_local_fragment *p = &f->fragments[it.index];
        if (it.value.type != DL_JSON_OBJECT)
            return dl_fail(DILOCO_EPROTO, "fragment %zu is not an object", it.index);
        DL_TRY(dl_json_read_u64(&p->stats.steps, it.value, "steps", UINT64_MAX));
        DL_TRY(dl_json_read_u64(&p->stats.samples, it.value, "samples", UINT64_MAX));
        DL_TRY(dl_json_read_u64(&p->stats.tokens, it.value, "tokens", UINT64_MAX));
        DL_TRY(dl_json_read_u64(&p->stats.first_sample, it.value, "first_sample", UINT64_MAX));
        DL_TRY(dl_json_read_f64_or_nan(&p->loss_sum, it.value, "loss_sum"));
        DL_TRY(dl_json_read_hash(&p->base, it.value, "base"));
        dl_pace_fragment *at = &f->pace.fragments[it.index];
        DL_TRY(dl_json_read_u64(&at->since, it.value, "since", UINT64_MAX));
        DL_TRY(dl_json_read_bool(&at->behind, it.value, "behind"));
    }
    return DILOCO_OK;
}

/* The caller's array has DL_PACE_MAX_CAPTURES rows. The difference is checked for its sign and for
 * that maximum before any row is written. */
static diloco_status read_captures(dl_pace_saved *p, dl_json_value array, size_t n_fragments)
{
    const uint64_t n = p->n_captured - p->next_adopt;
    if (p->next_adopt > p->n_captured || n > DL_PACE_MAX_CAPTURES || dl_json_count(array) != n)
        return dl_fail(DILOCO_EPROTO, "\"under_way\" is not what n_taken and next_adopt say");
    for (dl_json_iter it = dl_json_each(array); dl_json_next(&it);) {
        dl_pace_capture *t = &p->captures[it.index];
        *t = (dl_pace_capture){.entry = p->next_adopt + it.index};
        if (it.value.type != DL_JSON_OBJECT)
            return dl_fail(DILOCO_EPROTO, "the in-flight exchange is not an object");
        DL_TRY(dl_json_read_u64(&t->position, it.value, "position", UINT64_MAX));
        DL_TRY(dl_json_read_u32(&t->fragment, it.value, "fragment", (uint32_t)n_fragments - 1));
        DL_TRY(dl_json_read_bool(&t->mute, it.value, "mute"));
        DL_TRY(dl_json_read_bool(&t->commit, it.value, "commit"));
        DL_TRY(dl_json_read_bool(&t->counted, it.value, "counted"));
    }
    return DILOCO_OK;
}

/* Optional: it is written only for a single committer (P26.4). */
static diloco_status read_formers(dl_former_generations *formers, dl_json_value array)
{
    *formers = (dl_former_generations){.n = 0};
    if (array.type == DL_JSON_MISSING) return DILOCO_OK;
    if (array.type != DL_JSON_ARRAY) return dl_fail(DILOCO_EPROTO, "\"formers\" is not a list");
    for (dl_json_iter it = dl_json_each(array); dl_json_next(&it);) {
        if (it.index == DL_FORMER_GENERATIONS_MAX || it.value.type != DL_JSON_OBJECT)
            return dl_fail(DILOCO_EPROTO, "\"formers\" is not a list of at most %d generations",
                           DL_FORMER_GENERATIONS_MAX);
        DL_TRY(dl_json_read_u32(&formers->at[it.index], it.value, "generation", DL_GENERATION_MAX));
        formers->n = it.index + 1;
    }
    return DILOCO_OK;
}

/* The file's digest was checked, so a wrong member means another program rather than damage. Every
 * number is still bounded before it is used. */
diloco_status dl_local_facts_read(dl_local_facts *f, const char *text, size_t len)
{
    dl_json_value o;
    DL_TRY(dl_json_parse(&o, text, len));
    DL_TRY(dl_json_read_run(f->run, o));
    DL_TRY(dl_json_read_str(f->replica, sizeof f->replica, o, "replica"));
    f->generation = DL_GENERATION_ANY;
    if (dl_json_get(o, "generation").type != DL_JSON_MISSING)
        DL_TRY(dl_json_read_u32(&f->generation, o, "generation", UINT32_MAX));
    DL_TRY(read_formers(&f->formers, dl_json_get(o, "formers")));
    DL_TRY(dl_json_read_u64(&f->pace.position, o, "position", UINT64_MAX));
    DL_TRY(dl_json_read_u64(&f->pace.applied, o, "entry", UINT64_MAX));
    DL_TRY(dl_json_read_u64(&f->pace.next_adopt, o, "next_adopt", UINT64_MAX));
    DL_TRY(dl_json_read_u64(&f->pace.n_captured, o, "n_taken", UINT64_MAX));
    DL_TRY(dl_json_read_u64(&f->pace.base, o, "base_entry", UINT64_MAX));
    DL_TRY(dl_json_read_finite_bits(&f->pace.weight, o, "weight"));
    DL_TRY(read_captures(&f->pace, dl_json_get(o, "under_way"), f->n_fragments));
    DL_TRY(dl_json_read_u64(&f->step, o, "step", UINT64_MAX));
    DL_TRY(dl_json_read_u64(&f->shard, o, "shard", UINT64_MAX));
    DL_TRY(dl_json_read_u64(&f->next_sample, o, "next_sample", UINT64_MAX));
    DL_TRY(read_fragments(f, dl_json_get(o, "fragments")));
    DL_TRY(dl_json_read_hash(&f->manifest, o, "manifest_digest"));
    DL_TRY(dl_json_read_str(f->isa, sizeof f->isa, o, "isa"));
    snprintf(f->device, sizeof f->device, "cpu");
    if (dl_json_get(o, "device").type != DL_JSON_MISSING)
        DL_TRY(dl_json_read_str(f->device, sizeof f->device, o, "device"));
    DL_TRY(dl_json_read_u32(&f->threads, o, "threads", UINT32_MAX));
    return dl_json_read_str(f->program, sizeof f->program, o, "program");
}
