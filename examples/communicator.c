/* communicator.c - DiLoCo over an exchange of one's own: two replicas in one process, each on its
 * thread, over a communicator made of a table, a lock and a condition.
 *
 *     cc communicator.c $(pkg-config --cflags --libs diloco) -lpthread -o communicator
 *     ./communicator
 *
 * Each replica fits y = sum (i + 1) x_i on data of its own. Its model is two fragments, one due
 * every 5 steps; each exchange runs beside 2 more steps before it is waited for. Both end with
 * the same model. */
#include <diloco/loop.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 8, REPLICAS = 2, STEPS = 800, SLOTS = 8 };

/* ---- the exchange: one slot for each all-reduce in flight */

typedef struct slot {
    bool used;
    uint64_t entry;
    uint32_t fragment, part;
    int n_here, n_taken;
    float sum[N];
} slot;

static struct {
    pthread_mutex_t lock; /* of the slots */
    pthread_cond_t changed;
    slot slots[SLOTS];
} table = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

typedef struct pending {
    slot *slot;
    float *data;
    size_t n;
} pending;

/* The slot of this key, made by the first that asks; called with the lock held. */
static slot *find(const diloco_reduce *r)
{
    slot *unused = NULL;
    for (slot *s = table.slots; s < table.slots + SLOTS; s++) {
        if (s->used && s->entry == r->entry && s->fragment == r->fragment && s->part == r->part)
            return s;
        if (!s->used) unused = s;
    }
    if (unused)
        *unused = (slot){.used = true, .entry = r->entry, .fragment = r->fragment, .part = r->part};
    return unused;
}

static diloco_status all_reduce(void *user, const diloco_reduce *r, void **handle)
{
    (void)user;
    pending *p = malloc(sizeof *p);
    if (!p) return DILOCO_ENOMEM;
    pthread_mutex_lock(&table.lock);
    slot *s = find(r);
    *p = (pending){s, r->data, r->n};
    for (size_t i = 0; s && i < r->n; i++)
        s->sum[i] += r->data[i];
    if (s) s->n_here++;
    pthread_cond_broadcast(&table.changed);
    pthread_mutex_unlock(&table.lock);
    *handle = p;
    return DILOCO_OK;
}

static diloco_status wait_for(void *user, void *handle)
{
    (void)user;
    pending *p = handle;
    slot *s = p->slot;
    if (!s) {
        free(p);
        return DILOCO_EFULL;
    }
    pthread_mutex_lock(&table.lock);
    while (s->n_here < REPLICAS)
        pthread_cond_wait(&table.changed, &table.lock);
    for (size_t i = 0; i < p->n; i++)
        p->data[i] = s->sum[i] / REPLICAS; /* two addends: the order does not matter */
    if (++s->n_taken == REPLICAS) s->used = false;
    pthread_mutex_unlock(&table.lock);
    free(p);
    return DILOCO_OK;
}

/* ---- a replica */

typedef struct replica {
    pthread_t thread;
    float w[N];
    unsigned random;
    uint64_t commits;
    int failed;
} replica;

static double uniform(unsigned *state) /* in [-1, 1) */
{
    *state = *state * 1664525u + 1013904223u;
    return (double)*state / 2147483648.0 - 1;
}

static void train_step(replica *r)
{
    double x[N], error = 0;
    for (int i = 0; i < N; i++) {
        x[i] = uniform(&r->random);
        error += ((double)r->w[i] - (i + 1)) * x[i];
    }
    for (int i = 0; i < N; i++)
        r->w[i] -= (float)(0.1 * error * x[i]);
}

static diloco_status train(replica *r, diloco_loop *loop)
{
    diloco_tensor low = {.name = "low", .data = r->w, .n_dims = 1, .shape = {N / 2}};
    diloco_tensor high = {
        .name = "high", .data = r->w + N / 2, .n_dims = 1, .shape = {N / 2}, .fragment = 1};
    diloco_status status = diloco_loop_tensor(loop, &low);
    if (!status) status = diloco_loop_tensor(loop, &high);
    if (!status) status = diloco_loop_start(loop);
    for (int step = 0; step < STEPS && !status; step++) {
        train_step(r);
        status = diloco_loop_step(loop); /* all else happens in there */
    }
    diloco_loop_info now = {.size = sizeof now};
    diloco_loop_now(loop, &now);
    r->commits = now.commits;
    return status ? status : diloco_loop_restore(loop); /* end with the shared model */
}

static void *live(void *user)
{
    replica *r = user;
    diloco_loop *loop = NULL;
    diloco_communicator exchange = {
        .size = sizeof exchange, .all_reduce = all_reduce, .wait = wait_for};
    diloco_loop_options options = {
        .size = sizeof options, .fragments = 2, .sync_every = 10, .fragment_sync_delay = 2};
    diloco_status status = diloco_loop_create(&loop, &options, &exchange);
    if (!status) status = train(r, loop);
    if (status) fprintf(stderr, "communicator: %s\n", diloco_error_text());
    r->failed = status != DILOCO_OK;
    diloco_loop_destroy(loop);
    return NULL;
}

int main(void)
{
    replica replicas[REPLICAS] = {{.random = 1}, {.random = 2}};
    for (int i = 0; i < REPLICAS; i++)
        if (pthread_create(&replicas[i].thread, NULL, live, &replicas[i])) return 1;
    for (int i = 0; i < REPLICAS; i++)
        pthread_join(replicas[i].thread, NULL);
    for (int i = 0; i < REPLICAS; i++) {
        if (replicas[i].failed) return 1;
        printf("%llu commits:", (unsigned long long)replicas[i].commits);
        for (int k = 0; k < N; k++)
            printf(" %.6g", (double)replicas[i].w[k]);
        printf("\n");
    }
    return memcmp(replicas[0].w, replicas[1].w, sizeof replicas[0].w) != 0;
}
