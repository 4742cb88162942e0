/* loop_world.h - replicas with a loop each, in one thread, over a communicator that is a table of
 * letter boxes: contributions are matched by (entry, fragment, part) and nothing else. Begin and
 * wait of one replica may be anywhere between those of another, as long as all have begun
 * before one waits. Takes nothing from the heap. */
#ifndef DL_TESTS_LOOP_WORLD_H
#define DL_TESTS_LOOP_WORLD_H

#include "check.h"
#include <diloco/loop.h>

enum { WORLD_MEMBERS = 4, WORLD_BOXES = 64, WORLD_BOX = 64, WORLD_MODEL = 64 };

typedef struct world_box {
    bool used;
    uint64_t entry;
    uint32_t fragment, part;
    size_t n, n_taken;
    bool here[WORLD_MEMBERS];
    float letters[WORLD_MEMBERS][WORLD_BOX];
} world_box;

typedef struct world world;

typedef struct world_member {
    world *world;
    int index;
    diloco_loop *loop;
    float w[WORLD_MODEL]; /* its model */
    uint64_t commits;     /* the value of current_step */
    int quorums, begun, waited, votes;
    bool well;                 /* last vote */
    bool refuse;               /* vote no */
    bool says_errored;         /* the value of errored */
    int fail_begin;            /* this all-reduce from now on fails to begin; 0: none */
    int fail_wait;             /* likewise its wait */
    diloco_status quorum;      /* the result of start_quorum */
    bool pending[WORLD_BOXES]; /* begun and not waited for */
} world_member;

struct world {
    int n_members;
    world_box boxes[WORLD_BOXES];
    float *lent[WORLD_BOXES][WORLD_MEMBERS]; /* where the mean goes */
    world_member members[WORLD_MEMBERS];
};

static world_box *world_find(world *w, const diloco_reduce *r)
{
    world_box *unused = NULL;
    for (int i = 0; i < WORLD_BOXES; i++) {
        world_box *b = &w->boxes[i];
        if (!b->used)
            unused = unused ? unused : b;
        else if (b->entry == r->entry && b->fragment == r->fragment && b->part == r->part)
            return b;
    }
    CHECK(unused != NULL);
    *unused = (world_box){
        .used = true, .entry = r->entry, .fragment = r->fragment, .part = r->part, .n = r->n};
    return unused;
}

static diloco_status world_all_reduce(void *user, const diloco_reduce *r, void **handle)
{
    world_member *m = user;
    m->begun++;
    if (m->fail_begin > 0 && --m->fail_begin == 0) return DILOCO_EUNREACHABLE;
    world_box *box = world_find(m->world, r);
    CHECK(r->n <= WORLD_BOX && r->n == box->n && !box->here[m->index]);
    memcpy(box->letters[m->index], r->data, r->n * sizeof(float));
    box->here[m->index] = true;
    size_t number = (size_t)(box - m->world->boxes);
    m->world->lent[number][m->index] = r->data;
    m->pending[number] = true;
    *handle = box;
    return DILOCO_OK;
}

static diloco_status world_wait(void *user, void *handle)
{
    world_member *m = user;
    world_box *box = handle;
    size_t number = (size_t)(box - m->world->boxes);
    CHECK(m->pending[number]); /* each handle once */
    m->pending[number] = false;
    m->waited++;
    if (m->fail_wait > 0 && --m->fail_wait == 0) return DILOCO_ETIMEDOUT;
    for (size_t k = 0; k < box->n; k++) {
        float sum = 0;
        for (int i = 0; i < m->world->n_members; i++) {
            CHECK(box->here[i]); /* both prepared before one waits */
            sum += box->letters[i][k];
        }
        m->world->lent[number][m->index][k] = sum / (float)m->world->n_members;
    }
    if (++box->n_taken == (size_t)m->world->n_members) box->used = false;
    return DILOCO_OK;
}

static diloco_status world_quorum(void *user)
{
    world_member *m = user;
    m->quorums++;
    return m->quorum;
}

static uint64_t world_step(void *user)
{
    return ((world_member *)user)->commits;
}

static bool world_errored(void *user)
{
    return ((world_member *)user)->says_errored;
}

static diloco_status world_vote(void *user, bool well, bool *commit)
{
    world_member *m = user;
    m->votes++;
    m->well = well;
    *commit = well && !m->refuse;
    if (*commit) m->commits++;
    return DILOCO_OK;
}

static inline diloco_communicator world_communicator(world_member *m)
{
    return (diloco_communicator){.size = sizeof(diloco_communicator),
                                 .user = m,
                                 .all_reduce = world_all_reduce,
                                 .wait = world_wait,
                                 .start_quorum = world_quorum,
                                 .current_step = world_step,
                                 .errored = world_errored,
                                 .should_commit = world_vote};
}

/* n_members replicas, nothing registered. The caller zeroes nothing and destroys it. */
static inline void world_begin(world *w, int n_members, const diloco_loop_options *options)
{
    memset(w, 0, sizeof *w);
    w->n_members = n_members;
    for (int i = 0; i < n_members; i++) {
        world_member *m = &w->members[i];
        m->world = w;
        m->index = i;
        diloco_communicator c = world_communicator(m);
        CHECK_OK(diloco_loop_create(&m->loop, options, &c));
    }
}

/* Register elements [first, first + n) of a member's model, in memory. */
static inline void world_tensor(world_member *m, const char *name, size_t first, size_t n,
                                int fragment)
{
    diloco_tensor t = {.name = name,
                       .data = m->w + first,
                       .dtype = DILOCO_F32,
                       .n_dims = 1,
                       .shape = {n},
                       .fragment = fragment};
    CHECK(first + n <= WORLD_MODEL);
    CHECK_OK(diloco_loop_tensor(m->loop, &t));
}

static inline void world_end(world *w)
{
    for (int i = 0; i < w->n_members; i++)
        diloco_loop_destroy(w->members[i].loop);
}

/* An outer optimizer by name. */
static inline diloco_config *world_outer(const char *name, const char *lr)
{
    diloco_config *config = diloco_config_create();
    CHECK(config != NULL);
    CHECK_OK(diloco_config_set(config, "server.diloco.outer_optimizer", name, NULL));
    CHECK_OK(diloco_config_set(config, "server.diloco.outer_learning_rate", lr, NULL));
    return config;
}

#endif
