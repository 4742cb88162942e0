/* file_sync.c - a sync through a folder against plain files.
 *
 *     file_sync [parameters] [replicas] [rounds] [folder [url [KEY=VALUE]…]]
 *                                                        defaults: 10000000, 8, 5, $TMPDIR
 *
 * With a url the sync goes through that store instead; more settings may follow.
 *
 * Every replica is a process with one thread. A round is, one after the other, so that a busy
 * moment meets both:
 *
 *   digest  each process takes the digest of its 4 bytes a parameter, once
 *   plain   each process writes a file of 4 bytes a parameter, fsyncs and closes it; when all
 *           have, each reads all files
 *   sync    one entry of a run (H = 1): contribution, commit, outer step, adoption
 *
 * A time is that of the slowest process; the medians over the rounds count, the first round
 * left out. bench/file_sync.md and bench/sync.md have results. */
#include "base/clock.h"
#include "base/hash.h"
#include "store/store.h"
#include <diloco/run.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_REPLICAS = 64, MAX_ROUNDS = 64, PIECE = 1 << 20 };

/* Between the processes. */
typedef struct shared {
    pthread_barrier_t barrier;
    double digest[MAX_ROUNDS][MAX_REPLICAS];
    double plain[MAX_ROUNDS][MAX_REPLICAS], sync[MAX_ROUNDS][MAX_REPLICAS];
    dl_hash hash[MAX_REPLICAS]; /* the digest's, so that it is taken */
} shared;

typedef struct bench {
    size_t n;
    int replicas, rounds;
    char folder[512], store[600];
    char **settings; /* [n_settings] KEY=VALUE */
    int n_settings;
    shared *shared;
} bench;

static void need(bool ok, const char *what)
{
    if (ok) return;
    perror(what);
    _exit(1);
}

static void need_ok(diloco_status status)
{
    if (!status) return;
    fprintf(stderr, "%s\n", diloco_error_text());
    _exit(1);
}

/* ---- plain files ------------------------------------------------------------------------ */

static void write_plain(const bench *b, int me, const char *bytes)
{
    char path[600];
    const size_t len = b->n * sizeof(float);
    snprintf(path, sizeof path, "%s/plain.%d", b->folder, me);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    need(fd >= 0, path);
    for (size_t at = 0; at < len;) {
        const ssize_t n = write(fd, bytes + at, len - at);
        need(n > 0, path);
        at += (size_t)n;
    }
    need(fsync(fd) == 0 && close(fd) == 0, path);
}

static void read_plain(const bench *b, char *piece)
{
    for (int r = 0; r < b->replicas; r++) {
        char path[600];
        snprintf(path, sizeof path, "%s/plain.%d", b->folder, r);
        const int fd = open(path, O_RDONLY);
        need(fd >= 0, path);
        size_t got = 0;
        for (ssize_t n; (n = read(fd, piece, PIECE)) > 0;)
            got += (size_t)n;
        need(got == b->n * sizeof(float) && close(fd) == 0, path);
    }
}

static double digest_round(const bench *b, int me, const float *w)
{
    pthread_barrier_wait(&b->shared->barrier);
    const dl_time began = dl_clock_now();
    b->shared->hash[me] = dl_digest_bytes(w, b->n * sizeof *w);
    return dl_seconds(dl_clock_now() - began);
}

static double plain_round(const bench *b, int me, const float *w, char *piece)
{
    pthread_barrier_wait(&b->shared->barrier);
    const dl_time began = dl_clock_now();
    write_plain(b, me, (const char *)w);
    pthread_barrier_wait(&b->shared->barrier);
    read_plain(b, piece);
    const double s = dl_seconds(dl_clock_now() - began);
    pthread_barrier_wait(&b->shared->barrier);
    char path[600];
    snprintf(path, sizeof path, "%s/plain.%d", b->folder, me);
    need(unlink(path) == 0, path);
    return s;
}

/* ---- exchanged objects ------------------------------------------------------------------- */

typedef struct keys {
    char (*at)[DL_KEY_MAX + 1];
    size_t n;
} keys;

static diloco_status keep_key(void *context, const char *key, size_t len)
{
    keys *k = context;
    (void)len;
    k->at = realloc(k->at, (k->n + 1) * sizeof *k->at);
    need(k->at != NULL, "memory");
    snprintf(k->at[k->n++], sizeof *k->at, "%.*s", DL_KEY_MAX, key);
    return DILOCO_OK;
}

/* As collection does after a snapshot (P25). So a store in memory gets pages that were used before,
 * as in a long run, and not new ones of the machine. */
static void collect(const bench *b)
{
    static const char *const folders[] = {"b/", "c/", "x/"};
    keys k = {.n = 0};
    dl_store *store;
    need_ok(dl_store_open(&store, b->store, false));
    for (int i = 0; i < 3; i++)
        need_ok(dl_store_list(store, folders[i], NULL, keep_key, &k, DL_NEVER));
    for (size_t i = 0; i < k.n; i++)
        need_ok(dl_store_delete(store, k.at[i], DL_NEVER));
    dl_store_close(store);
    free(k.at);
}

/* ---- a replica -------------------------------------------------------------------------- */

static diloco_run *join(const bench *b, int me, float *w)
{
    char name[16], replicas[16], rounds[16];
    diloco_run *run;
    diloco_config *config = diloco_config_create();
    diloco_tensor tensor = {.name = "w", .data = w, .n_dims = 1, .shape = {b->n}};
    snprintf(name, sizeof name, "r%d", me);
    snprintf(replicas, sizeof replicas, "%d", b->replicas);
    snprintf(rounds, sizeof rounds, "%d", b->rounds);
    const char *settings[][2] = {{"run.store", b->store},
                                 {"run.replicas", replicas},
                                 {"run.threads", "1"},
                                 {"run.state_dir", "none"}, /* private state is not exchanged */
                                 {"run.snapshot_every", "1e9"},
                                 {"trainer.rounds", rounds},
                                 {"trainer.local_steps_per_round", "1"}};
    need(config != NULL, "memory");
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        need_ok(diloco_config_set(config, settings[i][0], settings[i][1], NULL));
    for (int i = 0; i < b->n_settings; i++) {
        char key[64];
        const size_t len = strcspn(b->settings[i], "=");
        snprintf(key, sizeof key, "%.*s", (int)len, b->settings[i]);
        const char *value = b->settings[i] + len + (b->settings[i][len] == '=');
        need_ok(diloco_config_set(config, key, value, NULL));
    }
    need_ok(diloco_run_open(&run, config, name));
    need_ok(diloco_run_tensor(run, &tensor));
    diloco_config_destroy(config);
    if (me == 0) need_ok(diloco_run_create(run));
    pthread_barrier_wait(&b->shared->barrier);
    need_ok(diloco_run_join(run));
    return run;
}

static void live(const bench *b, int me)
{
    float *w = malloc(b->n * sizeof *w);
    char *piece = malloc(PIECE);
    need(w && piece, "memory");
    for (size_t i = 0; i < b->n; i++)
        w[i] = (float)(i % 1000) * 1e-3f;
    diloco_run *run = join(b, me, w);
    for (int round = 0; round < b->rounds; round++) {
        b->shared->digest[round][me] = digest_round(b, me, w);
        b->shared->plain[round][me] = plain_round(b, me, w, piece);
        for (size_t i = 0; i < b->n; i++)
            w[i] -= 1e-3f * (float)((i + (size_t)me) % 7);
        pthread_barrier_wait(&b->shared->barrier);
        const dl_time began = dl_clock_now();
        /* The last entry of a run is followed by its last snapshot: it is not measured. */
        need_ok(diloco_step(run, &(diloco_step_report){.loss = 1, .samples = 1, .tokens = 1}));
        b->shared->sync[round][me] = dl_seconds(dl_clock_now() - began);
        pthread_barrier_wait(&b->shared->barrier);
        if (me == 0 && round < b->rounds - 1) collect(b);
    }
    diloco_run_close(run);
    _exit(0);
}

/* ---- all of them ------------------------------------------------------------------------ */

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median over rounds 1 … n-2 of the slowest process. */
static double median(const bench *b, double (*times)[MAX_REPLICAS])
{
    double slowest[MAX_ROUNDS];
    const int n = b->rounds - 2;
    for (int round = 0; round < n; round++) {
        slowest[round] = 0;
        for (int r = 0; r < b->replicas; r++)
            if (times[round + 1][r] > slowest[round]) slowest[round] = times[round + 1][r];
    }
    qsort(slowest, (size_t)n, sizeof slowest[0], by_size);
    return slowest[n / 2];
}

static int arg(int argc, char **argv, int i, int otherwise)
{
    return argc > i ? atoi(argv[i]) : otherwise;
}

int main(int argc, char **argv)
{
    const char *tmp = getenv("TMPDIR");
    bench b = {.n = (size_t)arg(argc, argv, 1, 10000000),
               .replicas = arg(argc, argv, 2, 8),
               .rounds = arg(argc, argv, 3, 5) + 2};
    if (b.n < 1 || b.replicas < 1 || b.replicas > MAX_REPLICAS || b.rounds < 3 ||
        b.rounds > MAX_ROUNDS)
        return fprintf(stderr, "usage: file_sync [parameters] [replicas] [rounds] "
                               "[folder [url [KEY=VALUE]...]]\n"),
               2;
    snprintf(b.folder, sizeof b.folder, "%s/file_sync.XXXXXX",
             argc > 4 ? argv[4]
             : tmp    ? tmp
                      : "/tmp");
    need(mkdtemp(b.folder) != NULL, b.folder);
    if (argc > 5 && *argv[5])
        snprintf(b.store, sizeof b.store, "%s", argv[5]);
    else
        snprintf(b.store, sizeof b.store, "%s/run", b.folder);
    if (argc > 6) b.settings = argv + 6, b.n_settings = argc - 6;
    b.shared =
        mmap(NULL, sizeof *b.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need(b.shared != MAP_FAILED, "memory");
    pthread_barrierattr_t attr;
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&b.shared->barrier, &attr, (unsigned)b.replicas);

    pid_t pids[MAX_REPLICAS];
    int how, failed = 0;
    for (int r = 0; r < b.replicas; r++) {
        pids[r] = fork();
        need(pids[r] >= 0, "fork");
        if (pids[r] == 0) live(&b, r);
    }
    for (int r = 0; r < b.replicas; r++) {
        const pid_t gone = wait(&how);
        if (how == 0 || failed++) continue;
        for (int other = 0; other < b.replicas; other++) /* the others wait at the barrier */
            if (pids[other] != gone) kill(pids[other], SIGKILL);
    }
    if (!failed) {
        const double plain = median(&b, b.shared->plain), sync = median(&b, b.shared->sync);
        printf("%d replicas of %zu parameters, %.0f MB each: digest %.3f s, plain %.3f s, "
               "sync %.3f s, ratio %.2f\n",
               b.replicas, b.n, 4e-6 * (double)b.n, median(&b, b.shared->digest), plain, sync,
               sync / plain);
    }
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", b.folder);
    return system(command) || failed;
}
