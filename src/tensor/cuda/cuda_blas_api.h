/* cuda_blas_api.h - the functions of cuBLASLt that cuda_blas.c calls (docs.nvidia.com, cuBLAS). No
 * header of it is needed: handles are void *, types and results are int. tests/cuda_emu has a
 * library with the same symbols. */
#ifndef DL_TENSOR_CUDA_BLAS_API_H
#define DL_TENSOR_CUDA_BLAS_API_H

#include <stddef.h>
#include <stdint.h>

typedef struct dl_cublas_algorithm {
    uint64_t data[8];
} dl_cublas_algorithm;

/* The library's cublasLtMatmulHeuristicResult_t. */
typedef struct dl_cublas_choice {
    dl_cublas_algorithm algorithm;
    size_t workspace; /* bytes */
    int state;        /* 0: valid */
    float waves;
    int reserved[4];
} dl_cublas_choice;

/* Our name, the library's symbol, the arguments. */
// clang-format off
#define DL_CUBLAS_FUNCTIONS(X) \
    X(create, cublasLtCreate, (void **handle)) \
    X(destroy, cublasLtDestroy, (void *handle)) \
    X(operation_create, cublasLtMatmulDescCreate, (void **operation, int compute, int scale)) \
    X(operation_destroy, cublasLtMatmulDescDestroy, (void *operation)) \
    X(operation_set, cublasLtMatmulDescSetAttribute, (void *operation, int attribute, \
                                                      const void *value, size_t size)) \
    X(layout_create, cublasLtMatrixLayoutCreate, (void **layout, int type, uint64_t rows, \
                                                  uint64_t columns, int64_t stride)) \
    X(layout_destroy, cublasLtMatrixLayoutDestroy, (void *layout)) \
    X(preference_create, cublasLtMatmulPreferenceCreate, (void **preference)) \
    X(preference_destroy, cublasLtMatmulPreferenceDestroy, (void *preference)) \
    X(preference_set, cublasLtMatmulPreferenceSetAttribute, (void *preference, int attribute, \
                                                             const void *value, size_t size)) \
    X(choose, cublasLtMatmulAlgoGetHeuristic, (void *handle, void *operation, void *a, void *b, \
                                               void *c, void *d, void *preference, int most, \
                                               dl_cublas_choice *choices, int *n)) \
    X(multiply, cublasLtMatmul, (void *handle, void *operation, const void *alpha, const void *a, \
                                 void *a_layout, const void *b, void *b_layout, const void *beta, \
                                 const void *c, void *c_layout, void *d, void *d_layout, \
                                 const dl_cublas_algorithm *algorithm, void *workspace, \
                                 size_t workspace_bytes, void *stream))
// clang-format on

/* Constants of cublasLt.h, cublas_api.h and library_types.h. */
enum {
    DL_CUBLAS_INVALID_VALUE = 7, /* results */
    DL_CUBLAS_NOT_SUPPORTED = 15,
    DL_CUBLAS_R_32F = 0,
    DL_CUBLAS_R_16BF = 14,
    DL_CUBLAS_COMPUTE_32F = 68, /* float32 throughout, no TF32 */
    DL_CUBLAS_OP_N = 0,
    DL_CUBLAS_OP_T = 1,
    DL_CUBLAS_TRANSA = 3, /* attributes of an operation */
    DL_CUBLAS_TRANSB = 4,
    DL_CUBLAS_EPILOGUE = 7,
    DL_CUBLAS_BIAS_POINTER = 8,
    DL_CUBLAS_EPILOGUE_BIAS = 4,
    DL_CUBLAS_PREFER_WORKSPACE = 1, /* attributes of a preference */
    DL_CUBLAS_PREFER_REDUCTIONS = 3,
    DL_CUBLAS_PREFER_ALIGNMENT_A = 5, /* B, C and D follow */
    DL_CUBLAS_REDUCE_COMPUTE_TYPE = 2,
    DL_CUBLAS_REDUCE_OUTPUT_TYPE = 4
};

typedef struct dl_cublas {
    void *library;           /* of dlopen */
    size_t (*version)(void); /* cublasLtGetVersion: 10000 major + 100 minor + patch */
#define DL_CUBLAS_MEMBER(name, symbol, arguments) int(*name) arguments;
    DL_CUBLAS_FUNCTIONS(DL_CUBLAS_MEMBER)
#undef DL_CUBLAS_MEMBER
} dl_cublas;

#endif
