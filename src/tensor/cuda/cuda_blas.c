/* cuda_blas.c - see cuda_blas.h.
 *
 * The library stores matrices by columns, and we store them by rows. Our C = A B is C^T = B^T A^T
 * in its order. So it gets B as its first factor and A as its second, with rows and columns
 * exchanged.
 */
#include "tensor/cuda/cuda_blas.h"

#include "base/size.h"
#include "tensor/cuda/cuda_blas_api.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* A product for which there is no place is left to our kernel. Training has one plan for each
 * shape, layout and batch size. */
enum { PLANS = 512 };
static const size_t WORKSPACE = 32 << 20; /* the library's recommendation for Hopper */

typedef struct plan {
    dl_cuda_multiplication shape; /* without addresses */
    uint32_t alignment;           /* bytes */
    bool has_bias, exists;
    void *operation, *first, *second, *result;
    dl_cublas_algorithm algorithm;
} plan;

struct dl_cuda_blas {
    const dl_cuda *cuda;
    dl_cublas api;
    void *handle, *stream; /* stream: for captures alone */
    uint64_t workspace;    /* on the device; products on one stream share it */
    plan plans[PLANS];
    size_t n_plans;
    dl_cuda_blas_failure failure; /* the last error of the library */
};

/* ---- the library */

static bool load(dl_cublas *api, const char *path)
{
    void *at;
    api->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!api->library) return false;
#define FIND(name, symbol, arguments)                                                              \
    if (!(at = dlsym(api->library, #symbol))) return false;                                        \
    memcpy(&api->name, &at, sizeof at);
    FIND(version, cublasLtGetVersion, )
    DL_CUBLAS_FUNCTIONS(FIND)
#undef FIND
    return true;
}

static void unload(dl_cublas *api)
{
    if (api->library) dlclose(api->library);
    memset(api, 0, sizeof *api);
}

static bool open_blas(dl_cuda_blas *b, const char *const *libraries)
{
    for (size_t i = 0; libraries[i] && !b->api.library; i++)
        if (!load(&b->api, libraries[i])) unload(&b->api);
    return b->api.library && !b->api.create(&b->handle) &&
           !b->cuda->stream_create(&b->stream, DL_CUDA_STREAM_NON_BLOCKING) &&
           !b->cuda->alloc(&b->workspace, WORKSPACE);
}

dl_cuda_blas *dl_cuda_blas_open(const dl_cuda *cuda, const char *const *libraries)
{
    dl_cuda_blas *b = calloc(1, sizeof *b);
    if (!b) return NULL;
    b->cuda = cuda;
    if (open_blas(b, libraries)) return b;
    dl_cuda_blas_close(b);
    return NULL;
}

uint64_t dl_cuda_blas_version(const dl_cuda_blas *b)
{
    return b ? b->api.version() : 0;
}

dl_cuda_blas_failure dl_cuda_blas_failed(const dl_cuda_blas *b)
{
    return b->failure;
}

/* Keeps an error of the library. Returns its status. */
static int keep(dl_cuda_blas *b, int status, const char *function)
{
    if (status) b->failure = (dl_cuda_blas_failure){function, status};
    return status;
}

static void forget(const dl_cuda_blas *b, plan *p)
{
    if (p->operation) (void)b->api.operation_destroy(p->operation);
    if (p->first) (void)b->api.layout_destroy(p->first);
    if (p->second) (void)b->api.layout_destroy(p->second);
    if (p->result) (void)b->api.layout_destroy(p->result);
    p->operation = p->first = p->second = p->result = NULL;
}

/* Members that open_blas did not reach are zero. */
void dl_cuda_blas_close(dl_cuda_blas *b)
{
    if (!b) return;
    for (size_t i = 0; i < b->n_plans; i++)
        forget(b, &b->plans[i]);
    if (b->workspace) (void)b->cuda->release(b->workspace);
    if (b->stream) (void)b->cuda->stream_destroy(b->stream);
    if (b->handle) (void)b->api.destroy(b->handle);
    unload(&b->api);
    free(b);
}

/* ---- plans */

static dl_cuda_multiplication shape_of(const dl_cuda_multiplication *product)
{
    dl_cuda_multiplication shape = *product;
    shape.c = NULL;
    shape.a = shape.b = shape.bias = NULL;
    return shape;
}

/* The alignment of all arrays in bytes: 2, 4, 8 or 16. */
static uint32_t alignment_of(const dl_cuda_multiplication *p)
{
    const uintptr_t all =
        (uintptr_t)p->c | (uintptr_t)p->a | (uintptr_t)p->b | (uintptr_t)p->bias | 16;
    return (uint32_t)(all & (~all + 1));
}

/* These return a result of the library. DL_CUBLAS_NOT_SUPPORTED: it has no algorithm. */
static int set(dl_cuda_blas *b, void *operation, int attribute, const void *value, size_t size)
{
    return keep(b, b->api.operation_set(operation, attribute, value, size),
                "cublasLtMatmulDescSetAttribute");
}

static int set_number(dl_cuda_blas *b, void *operation, int attribute, int32_t value)
{
    return set(b, operation, attribute, &value, sizeof value);
}

static int prefer(dl_cuda_blas *b, void *preference, int attribute, const void *value, size_t size)
{
    return keep(b, b->api.preference_set(preference, attribute, value, size),
                "cublasLtMatmulPreferenceSetAttribute");
}

/* Split sums are added in the workspace, in a fixed order, and never in C in the order in which
 * they are done. They have the type of C only if that is f32. */
static int choose(dl_cuda_blas *b, plan *p, void *preference)
{
    const uint32_t reductions = DL_CUBLAS_REDUCE_COMPUTE_TYPE |
                                (p->shape.types == DL_CUDA_BF16 ? 0 : DL_CUBLAS_REDUCE_OUTPUT_TYPE);
    const uint64_t workspace = WORKSPACE;
    dl_cublas_choice choice;
    int n = 0;
    int code = prefer(b, preference, DL_CUBLAS_PREFER_WORKSPACE, &workspace, sizeof workspace);
    if (!code)
        code = prefer(b, preference, DL_CUBLAS_PREFER_REDUCTIONS, &reductions, sizeof reductions);
    for (int i = 0; i < 4 && !code; i++)
        code = prefer(b, preference, DL_CUBLAS_PREFER_ALIGNMENT_A + i, &p->alignment,
                      sizeof p->alignment);
    if (!code)
        code = keep(b,
                    b->api.choose(b->handle, p->operation, p->first, p->second, p->result,
                                  p->result, preference, 1, &choice, &n),
                    "cublasLtMatmulAlgoGetHeuristic");
    if (code) return code;
    if (n < 1 || choice.state || choice.workspace > WORKSPACE) return DL_CUBLAS_NOT_SUPPORTED;
    p->algorithm = choice.algorithm;
    return 0;
}

static int layout(dl_cuda_blas *b, void **out, bool bf16, uint64_t rows, uint64_t columns,
                  uint64_t stride)
{
    const int type = bf16 ? DL_CUBLAS_R_16BF : DL_CUBLAS_R_32F;
    return keep(b, b->api.layout_create(out, type, rows, columns, (int64_t)stride),
                "cublasLtMatrixLayoutCreate");
}

static int make_operation(dl_cuda_blas *b, plan *p)
{
    const dl_cuda_multiplication *s = &p->shape;
    int code =
        keep(b, b->api.operation_create(&p->operation, DL_CUBLAS_COMPUTE_32F, DL_CUBLAS_R_32F),
             "cublasLtMatmulDescCreate");
    if (!code)
        code = set_number(b, p->operation, DL_CUBLAS_TRANSA,
                          s->b_transposed ? DL_CUBLAS_OP_T : DL_CUBLAS_OP_N);
    if (!code)
        code = set_number(b, p->operation, DL_CUBLAS_TRANSB,
                          s->a_transposed ? DL_CUBLAS_OP_T : DL_CUBLAS_OP_N);
    if (!code && p->has_bias)
        code = set_number(b, p->operation, DL_CUBLAS_EPILOGUE, DL_CUBLAS_EPILOGUE_BIAS);
    return code;
}

/* Makes the operation and the layouts of a plan, and chooses its algorithm. */
static int make(dl_cuda_blas *b, plan *p)
{
    const dl_cuda_multiplication *s = &p->shape;
    void *preference = NULL;
    const bool factors = s->types != DL_CUDA_F32, result = s->types == DL_CUDA_BF16;
    const uint64_t a[2] = {s->a_transposed ? s->k : s->m, s->a_transposed ? s->m : s->k};
    const uint64_t f[2] = {s->b_transposed ? s->n : s->k, s->b_transposed ? s->k : s->n};
    int code = make_operation(b, p);
    if (!code) code = layout(b, &p->first, factors, f[1], f[0], s->b_stride);
    if (!code) code = layout(b, &p->second, factors, a[1], a[0], s->a_stride);
    if (!code) code = layout(b, &p->result, result, s->n, s->m, s->n);
    if (!code)
        code = keep(b, b->api.preference_create(&preference), "cublasLtMatmulPreferenceCreate");
    if (code) return code;
    code = choose(b, p, preference);
    (void)b->api.preference_destroy(preference);
    return code;
}

int dl_cuda_blas_plan(dl_cuda_blas *b, const dl_cuda_multiplication *product)
{
    const dl_cuda_multiplication shape = shape_of(product);
    const uint32_t alignment = alignment_of(product);
    if (product->m == 0 || product->n == 0 || product->k == 0) return DL_CUDA_BLAS_NONE;
    DL_ASSERT(product->types == DL_CUDA_F32 || !product->bias);
    for (size_t i = 0; i < b->n_plans; i++)
        if (memcmp(&b->plans[i].shape, &shape, sizeof shape) == 0 &&
            b->plans[i].alignment == alignment && b->plans[i].has_bias == (product->bias != NULL))
            return b->plans[i].exists ? (int)i : DL_CUDA_BLAS_NONE;
    if (b->n_plans == PLANS) return DL_CUDA_BLAS_NONE;
    plan *p = &b->plans[b->n_plans];
    *p = (plan){.shape = shape, .alignment = alignment, .has_bias = product->bias != NULL};
    const int code = make(b, p);
    if (code) forget(b, p);
    if (code && code != DL_CUBLAS_INVALID_VALUE && code != DL_CUBLAS_NOT_SUPPORTED)
        return DL_CUDA_BLAS_FAILED;
    p->exists = !code;
    b->n_plans++;
    return p->exists ? (int)b->n_plans - 1 : DL_CUDA_BLAS_NONE;
}

/* ---- products */

/* A bias that is not set for this call would be that of another layer. */
int dl_cuda_blas_start(dl_cuda_blas *b, int at, const dl_cuda_multiplication *product, void *stream)
{
    const plan *p = &b->plans[at];
    const float alpha = 1, beta = product->add ? 1 : 0;
    if (p->has_bias &&
        set(b, p->operation, DL_CUBLAS_BIAS_POINTER, &product->bias, sizeof product->bias))
        return DL_CUDA_BLAS_FAILED;
    const int status =
        b->api.multiply(b->handle, p->operation, &alpha, product->b, p->first, product->a,
                        p->second, &beta, product->c, p->result, product->c, p->result,
                        &p->algorithm, (void *)(uintptr_t)b->workspace, WORKSPACE, stream);
    return keep(b, status, "cublasLtMatmul") ? DL_CUDA_BLAS_FAILED : DL_CUDA_SUCCESS;
}

int dl_cuda_blas_capture(void **graph, dl_cuda_blas *b, int at,
                         const dl_cuda_multiplication *product)
{
    *graph = NULL;
    int code = b->cuda->capture_begin(b->stream, DL_CUDA_CAPTURE_RELAXED);
    if (code) return code;
    const int started = dl_cuda_blas_start(b, at, product, b->stream);
    code = b->cuda->capture_end(b->stream, graph); /* also after a failure, or the stream is lost */
    if (!started) return code;
    if (*graph) (void)b->cuda->graph_destroy(*graph);
    *graph = NULL;
    return started;
}
