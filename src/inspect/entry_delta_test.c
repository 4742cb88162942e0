/* entry_delta_test.c - FED-9: the reported movement of each tensor is the difference of the shared
 * models before and after the entry. Two other readings of the log give these models. */
#include "base/safetensors.h"

#include "toy_run.h"

#include <math.h>

typedef struct beside {
    float running[3];
    int64_t counter[2];
    uint8_t flag[2];
} beside;

static diloco_status register_beside(toy *t, diloco_run *run)
{
    beside *b = t->user;
    const diloco_tensor more[] = {
        {"running", b->running, DILOCO_F32, DILOCO_BUFFER, 1, {3}, 0},
        {"counter", b->counter, DILOCO_I64, DILOCO_BUFFER, 1, {2}, 0},
        {"flag", b->flag, DILOCO_BOOL, DILOCO_BUFFER, 1, {2}, 0},
    };
    diloco_status status = DILOCO_OK;
    for (size_t i = 0; i < 3 && !status; i++)
        status = diloco_run_tensor(run, &more[i]);
    return status;
}

static double move_all(toy *t, const diloco_run_info *now)
{
    beside *b = t->user;
    b->running[1] += 0.25f;
    b->counter[0] += 3;
    b->flag[1] = (uint8_t)(now->entry % 2 == 0);
    return toy_step(t, now);
}

static void run_of(const char *store)
{
    static beside b;
    toy t = toy_of("r0", store);
    toy_keep(store);
    toy_set(&t, "run.state_dir", "none");
    toy_set(&t, "run.retain", "all");
    b = (beside){.flag = {1, 0}};
    t.prepare = register_beside;
    t.step = move_all;
    t.user = &b;
    toy_live(&t);
    TOY_OK(t);
}

typedef struct side {
    void *bytes;
    dl_st st;
} side;

static void read_side(side *out, const char *store, uint64_t entries)
{
    size_t len;
    uint64_t entry;
    CHECK_OK(diloco_theta_read(&out->bytes, &len, &entry, store, entries));
    CHECK_INT(entries, entry);
    CHECK_OK(dl_st_open(&out->st, out->bytes, len));
}

static void close_side(side *s)
{
    dl_st_close(&s->st);
    diloco_free(s->bytes);
}

static double value_at(const side *s, const char *name, size_t i)
{
    const dl_st_tensor *t = dl_st_find(&s->st, name);
    const unsigned char *at = s->st.data + t->begin;
    float f;
    int64_t n;
    if (!strcmp(t->dtype, "BOOL")) return at[i];
    if (!strcmp(t->dtype, "I64")) return memcpy(&n, at + i * sizeof n, sizeof n), (double)n;
    return memcpy(&f, at + i * sizeof f, sizeof f), (double)f;
}

typedef struct comparison {
    side before, after;
    size_t n_tensors, n_moved, wrong;
} comparison;

static void compare(void *user, const diloco_movement *m)
{
    comparison *c = user;
    double sum = 0, largest = 0;
    for (size_t i = 0; i < m->count; i++) {
        const double d = value_at(&c->after, m->tensor, i) - value_at(&c->before, m->tensor, i);
        c->wrong += d != m->delta[i];
        sum += d * d;
        largest = fmax(largest, fabs(d));
    }
    c->wrong += fabs(m->norm - sqrt(sum)) > 1e-12 || m->largest != largest;
    c->n_tensors++;
    c->n_moved += m->norm > 0;
}

TEST(fed_9_the_movement_reported_of_each_tensor_is_after_minus_before)
{
    run_of("mem://moved");
    for (uint64_t entry = 0; entry < 4; entry++) {
        comparison c = {.wrong = 0};
        read_side(&c.before, "mem://moved", entry);
        read_side(&c.after, "mem://moved", entry + 1);
        CHECK_OK(diloco_movement_walk("mem://moved", entry, compare, &c));
        CHECK_INT(4, c.n_tensors);
        CHECK_INT(4, c.n_moved);
        CHECK_INT(0, c.wrong);
        close_side(&c.before);
        close_side(&c.after);
    }
}

TEST(an_entry_that_is_not_there_has_moved_nothing)
{
    comparison c = {.wrong = 0};
    run_of("mem://moved-not");
    CHECK_STATUS(DILOCO_ENOENT, diloco_movement_walk("mem://moved-not", 4, compare, &c));
    CHECK_CONTAINS("4 entries, and no entry 4", diloco_error_text());
    CHECK_INT(0, c.n_tensors);
}

TEST_MAIN(fed_9_the_movement_reported_of_each_tensor_is_after_minus_before,
          an_entry_that_is_not_there_has_moved_nothing)
