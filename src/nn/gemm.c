/* gemm.c - oneDNN's sgemm, one call a thread.
 *
 * Chosen by measurement on the shapes of our models (bench/train_speed.md): within a few
 * per cent of the FMA peak on all of them, 5 to 15 % ahead of OpenBLAS.
 *
 * Threads are ours: a caller splits the rows of C over a dl_pool and every part calls the
 * library alone. Debian's oneDNN runs on OpenMP and would start a team of its own in each of
 * our threads; inside the call the thread's OpenMP width is therefore 1, and afterwards what
 * it was. OpenMP comes in through libdnnl, if at all, so its two functions are looked up. */
#include "nn/gemm.h"

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>

static int (*omp_width)(void);
static void (*omp_set_width)(int);
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find_openmp(void)
{
    *(void **)&omp_width = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
    *(void **)&omp_set_width = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
}

void dl_gemm(const dl_gemm_args *g)
{
    if (g->m == 0 || g->n == 0) return;
    pthread_once(&once, find_openmp);
    int width = omp_width ? omp_width() : 1;
    if (width != 1 && omp_set_width) omp_set_width(1);
    dnnl_status_t status = dnnl_sgemm(g->trans_a, g->trans_b, (dnnl_dim_t)g->m, (dnnl_dim_t)g->n,
                                      (dnnl_dim_t)g->k, 1, g->a, (dnnl_dim_t)g->lda, g->b,
                                      (dnnl_dim_t)g->ldb, g->beta, g->c, (dnnl_dim_t)g->ldc);
    if (width != 1 && omp_set_width) omp_set_width(width);
    DL_ASSERT(status == dnnl_success);
}

void dl_gemm_rows(const dl_gemm_args *args, size_t begin, size_t end)
{
    dl_gemm_args part = *args;
    part.m = end - begin;
    part.a += args->trans_a == 'T' ? begin : begin * args->lda;
    part.c += begin * args->ldc;
    dl_gemm(&part);
}
