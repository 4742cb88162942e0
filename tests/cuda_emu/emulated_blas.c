/* emulated_blas.c - the functions of cuBLASLt that the backend calls, for the emulated device.
 *
 * It refuses what the library refuses: sizes that do not fit each other, short strides, a small
 * workspace. It also refuses arrays that are less aligned than promised, and an algorithm that was
 * chosen for another product. It has no algorithm for k = NONE_FOR, so that the caller needs its
 * own. */
#include "emulated.h"
#include "emulated_product.h"

#include "tensor/cuda/cuda_api.h"
#include "tensor/cuda/cuda_blas_api.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN                            __attribute__((visibility("default")))
#define DECLARE(name, symbol, arguments) SHOWN int symbol arguments;
DL_CUBLAS_FUNCTIONS(DECLARE)
DL_CUDA_FUNCTIONS(DECLARE)
#undef DECLARE
SHOWN size_t cublasLtGetVersion(void);
SHOWN uint64_t emulated_blas_products(void);
SHOWN uint64_t emulated_blas_objects(void);
SHOWN const char *emulated_blas_failed(void);

/* A call may be the one that fails (emulated_setup), but not one that frees. */
enum { INVALID = 7, FAILED = 13, UNSUPPORTED = 15, NONE_FOR = 13, NEEDS = 4096, THREADS = 256 };

typedef struct operation {
    int32_t transposed[2], epilogue;
    const float *bias;
} operation;

typedef struct layout {
    uint64_t rows, columns;
    int64_t stride;
    int type;
} layout;

typedef struct preference {
    uint64_t workspace;
    uint32_t reductions, alignment[4];
} preference;

static uint64_t n_objects, n_products;
static const char *failed; /* function that returned FAILED last */

static int fail(const char *function)
{
    failed = function;
    return FAILED;
}

const char *emulated_blas_failed(void)
{
    const char *function = failed;
    failed = NULL;
    return function;
}

uint64_t emulated_blas_products(void)
{
    return n_products;
}

uint64_t emulated_blas_objects(void)
{
    return n_objects;
}

size_t cublasLtGetVersion(void)
{
    return 130101;
}

static int create(void **out, size_t size, const char *function)
{
    *out = NULL;
    if (emulated_library_call()) return fail(function);
    *out = calloc(1, size);
    n_objects += *out != NULL;
    return *out ? 0 : 3;
}

static int destroy(void *object)
{
    if (!object) return INVALID;
    n_objects--;
    free(object);
    return 0;
}

int cublasLtCreate(void **handle)
{
    return create(handle, 1, __func__);
}
int cublasLtDestroy(void *handle)
{
    return destroy(handle);
}
int cublasLtMatmulDescCreate(void **out, int compute, int scale)
{
    return compute == DL_CUBLAS_COMPUTE_32F && scale == DL_CUBLAS_R_32F
               ? create(out, sizeof(operation), __func__)
               : UNSUPPORTED;
}
int cublasLtMatmulDescDestroy(void *of)
{
    return destroy(of);
}

int cublasLtMatmulDescSetAttribute(void *of, int attribute, const void *value, size_t size)
{
    operation *o = of;
    if (emulated_library_call()) return fail(__func__);
    int32_t *const at = attribute == DL_CUBLAS_TRANSA     ? &o->transposed[0]
                        : attribute == DL_CUBLAS_TRANSB   ? &o->transposed[1]
                        : attribute == DL_CUBLAS_EPILOGUE ? &o->epilogue
                                                          : NULL;
    if (at && size == sizeof *at)
        memcpy(at, value, size);
    else if (attribute == DL_CUBLAS_BIAS_POINTER && size == sizeof o->bias)
        memcpy(&o->bias, value, size);
    else
        return INVALID;
    return 0;
}

int cublasLtMatrixLayoutCreate(void **out, int type, uint64_t rows, uint64_t columns,
                               int64_t stride)
{
    if (type != DL_CUBLAS_R_32F && type != DL_CUBLAS_R_16BF) return UNSUPPORTED;
    const int code = create(out, sizeof(layout), __func__);
    if (!code) *(layout *)*out = (layout){rows, columns, stride, type};
    return code;
}
int cublasLtMatrixLayoutDestroy(void *of)
{
    return destroy(of);
}
int cublasLtMatmulPreferenceCreate(void **out)
{
    const int code = create(out, sizeof(preference), __func__);
    for (int i = 0; !code && i < 4; i++)
        ((preference *)*out)->alignment[i] = 256; /* unless the caller promises less */
    return code;
}
int cublasLtMatmulPreferenceDestroy(void *of)
{
    return destroy(of);
}

int cublasLtMatmulPreferenceSetAttribute(void *of, int attribute, const void *value, size_t size)
{
    preference *p = of;
    const int i = attribute - DL_CUBLAS_PREFER_ALIGNMENT_A;
    if (emulated_library_call()) return fail(__func__);
    if (attribute == DL_CUBLAS_PREFER_WORKSPACE && size == sizeof p->workspace)
        memcpy(&p->workspace, value, size);
    else if (attribute == DL_CUBLAS_PREFER_REDUCTIONS && size == sizeof p->reductions)
        memcpy(&p->reductions, value, size);
    else if (i >= 0 && i < 4 && size == sizeof p->alignment[0])
        memcpy(&p->alignment[i], value, size);
    else
        return INVALID;
    return 0;
}

/* ---- products */

/* Types of A, B and D that the library multiplies with sums in f32. A bias would have the type of
 * D, and the backend has none but in f32. */
static bool has_types(const operation *o, const layout *a, const layout *b, const layout *d)
{
    if (a->type != b->type) return false;
    return a->type == DL_CUBLAS_R_16BF ? !o->epilogue : d->type == DL_CUBLAS_R_32F;
}

/* Numbers of a product that an algorithm is for: m, n, k, both transpositions and the types, the
 * alignment. */
static bool describe(uint64_t out[6], const operation *o, const layout *a, const layout *b,
                     const layout *d)
{
    const bool ta = o->transposed[0], tb = o->transposed[1];
    out[0] = ta ? a->columns : a->rows;
    out[1] = tb ? b->rows : b->columns;
    out[2] = ta ? a->rows : a->columns;
    out[3] = (uint64_t)ta | (uint64_t)tb << 1 | (uint64_t)o->epilogue << 2 |
             (uint64_t)a->type << 8 | (uint64_t)d->type << 16;
    return has_types(o, a, b, d) && out[2] == (tb ? b->columns : b->rows) && d->rows == out[0] &&
           d->columns == out[1] && out[0] && out[1] && out[2] && a->stride >= (int64_t)a->rows &&
           b->stride >= (int64_t)b->rows && d->stride >= (int64_t)d->rows;
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *of, void *a, void *b, void *c, void *d,
                                   void *with, int most, dl_cublas_choice *choices, int *n)
{
    const preference *p = with;
    *n = 0;
    if (emulated_library_call()) return fail(__func__);
    if (!handle || c != d || most < 1) return INVALID;
    memset(choices, 0, sizeof *choices);
    if (!describe(choices->algorithm.data, of, a, b, d)) return INVALID;
    choices->algorithm.data[4] = p->alignment[0];
    /* A reduction in place would add in the order in which its parts are done, and one in the type
     * of D would round its parts to bf16. */
    const bool rounds =
        ((layout *)d)->type == DL_CUBLAS_R_16BF && p->reductions & DL_CUBLAS_REDUCE_OUTPUT_TYPE;
    if (rounds || p->reductions & 1 || p->workspace < NEEDS ||
        choices->algorithm.data[2] == NONE_FOR)
        return 0;
    choices->workspace = NEEDS;
    *n = 1;
    return 0;
}

static bool is_aligned(const void *at, uint64_t alignment)
{
    return (uintptr_t)at % alignment == 0;
}

int cublasLtMatmul(void *handle, void *of, const void *alpha, const void *a, void *a_layout,
                   const void *b, void *b_layout, const void *beta, const void *c, void *c_layout,
                   void *d, void *d_layout, const dl_cublas_algorithm *algorithm, void *workspace,
                   size_t workspace_bytes, void *stream)
{
    const operation *o = of;
    const layout *la = a_layout, *lb = b_layout, *ld = d_layout;
    const uint64_t alignment = algorithm->data[4];
    uint64_t now[6];
    void *function;
    if (emulated_library_call()) return fail(__func__);
    if (!handle || c != d || c_layout != d_layout || !workspace || workspace_bytes < NEEDS ||
        !describe(now, o, la, lb, ld) || memcmp(now, algorithm->data, 4 * sizeof now[0]) != 0 ||
        alignment == 0 || !is_aligned(a, alignment) || !is_aligned(b, alignment) ||
        !is_aligned(d, alignment))
        return INVALID;
    const bool ta = o->transposed[0], tb = o->transposed[1];
    emulated_product_arguments x = {.d = d,
                                    .x = a,
                                    .y = b,
                                    .bias = o->epilogue == DL_CUBLAS_EPILOGUE_BIAS ? o->bias : NULL,
                                    .m = now[0],
                                    .n = now[1],
                                    .k = now[2],
                                    .x_row = ta ? (uint64_t)la->stride : 1,
                                    .x_column = ta ? 1 : (uint64_t)la->stride,
                                    .y_row = tb ? (uint64_t)lb->stride : 1,
                                    .y_column = tb ? 1 : (uint64_t)lb->stride,
                                    .d_column = (uint64_t)ld->stride,
                                    .narrow_factors = la->type == DL_CUBLAS_R_16BF,
                                    .narrow_result = ld->type == DL_CUBLAS_R_16BF};
    memcpy(&x.alpha, alpha, sizeof x.alpha);
    memcpy(&x.beta, beta, sizeof x.beta);
    size_t size = sizeof x;
    void *extra[] = {DL_CUDA_EXTRA_POINTER, &x, DL_CUDA_EXTRA_SIZE, &size, DL_CUDA_EXTRA_END};
    const unsigned blocks = (unsigned)((x.m * x.n + THREADS - 1) / THREADS);
    if (cuModuleGetFunction(&function, handle, "emulated_product") ||
        cuLaunchKernel(function, blocks, 1, 1, THREADS, 1, 1, 0, stream, NULL, extra))
        return fail(__func__);
    n_products++;
    return 0;
}
