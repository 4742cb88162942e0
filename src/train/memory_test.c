/* memory_test.c - a training step and an exchange allocate nothing after the first rounds.
 *
 * malloc and the related functions are replaced here, in front of the C library's, and count.
 * Memory that the C library gets from the system directly does not pass through them. */
#include "sanitized.h"
#include "train_fixture.h"

#include <stdatomic.h>

#if !SANITIZED && defined(__GLIBC__)
#define COUNTED 1
static atomic_bool counting;
static atomic_size_t n_calls;

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);
void *aligned_alloc(size_t align, size_t n);
int posix_memalign(void **out, size_t align, size_t n);

static void note(void)
{
    if (atomic_load(&counting)) atomic_fetch_add(&n_calls, 1);
}

void *malloc(size_t n)
{
    note();
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    note();
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    note();
    return __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    note();
    return __libc_memalign(align, n);
}

int posix_memalign(void **out, size_t align, size_t n)
{
    note();
    *out = __libc_memalign(align, n);
    return *out ? 0 : 12;
}
#endif

#ifdef COUNTED
/* Replicas between the end of their third entry and their last step but one; while both are inside,
 * calls are counted. */
static atomic_int n_inside;

typedef struct process {
    const dl_config *config;
    const char *name;
    bool inside;
    diloco_status status;
} process;

static void watch(void *user, const diloco_progress *p)
{
    process *l = user;
    bool inside = p->entry >= 3 && p->position + 1 < p->positions;
    if (inside != l->inside) atomic_fetch_add(&n_inside, inside ? 1 : -1);
    l->inside = inside;
    atomic_store(&counting, atomic_load(&n_inside) == 2);
}

static void *live(void *user)
{
    process *l = user;
    diloco_train_hooks hooks = {.on_progress = watch, .user = l};
    l->status = diloco_train(l->config, l->name, &hooks);
    return NULL;
}

static void check_preset(const char *preset)
{
    pthread_t thread;
    dl_config *config = fixture_config(preset);
    set(config, "run.replicas", "2");
    set(config, "run.threads", "2");
    set(config, "trainer.rounds", "12");
    set(config, "run.snapshot_every",
        "1000000"); /* one may allocate, and would where this is slow */
    process a = {.config = config, .name = "r0"}, b = {.config = config, .name = "r1"};
    CHECK_INT(0, pthread_create(&thread, NULL, live, &b));
    live(&a);
    pthread_join(thread, NULL);
    atomic_store(&counting, false);
    CHECK_OK(a.status);
    CHECK_OK(b.status);
    CHECK_INT(0, atomic_load(&n_calls));
    free(config);
}

TEST(a_step_and_a_sync_allocate_nothing_after_the_first_rounds)
{
    check_preset("diloco");
    check_preset("muloco");
}
#else
TEST(a_step_and_a_sync_allocate_nothing_after_the_first_rounds)
{
    skip(); /* a sanitizer replaces malloc */
}
#endif

TEST_MAIN(a_step_and_a_sync_allocate_nothing_after_the_first_rounds)
