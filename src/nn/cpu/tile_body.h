/* tile_body.h - tile.h's functions for vectors of LANES floats. Included once for each width,
 * because a compiler keeps only vectors of the machine's own width in registers. */
#define JOIN_(a, b) a##b
#define JOIN(a, b)  JOIN_(a, b)
#define VEC         JOIN(dl_vec, LANES)
#define INTS        JOIN(dl_ints, LANES)

typedef float VEC __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t INTS __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* Add a * b to *sum, rounded once wherever the instruction set has such an instruction, else twice.
 * Whether a compiler contracts the plain expression depends on the loop around it: gcc 14 fuses the
 * block of 12 rows and not that of one row. An element would then depend on the block that holds
 * it. Neither compiler has a portable operation on vectors that it leaves fused. */
static inline DL_BODY void JOIN(dl_tile_fma, LANES)(VEC *sum, float a, const VEC *b)
{
#if defined(DL_UNFUSED)
    *sum += a * *b;
#elif defined(__x86_64__) && defined(__OPTIMIZE__) && (LANES > 4 || defined(__FMA__))
    const VEC all = a - (VEC){0}; /* a in each lane */
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(*sum) : "v"(all), "v"(*b));
#elif defined(__aarch64__) && LANES == 4
    *sum = (VEC)vfmaq_n_f32((float32x4_t)*sum, (float32x4_t)*b, a);
#elif LANES > 4 || defined(__FP_FAST_FMAF)
    for (int lane = 0; lane < LANES; lane++)
        (*sum)[lane] = __builtin_fmaf(a, (*b)[lane], (*sum)[lane]);
#else
    *sum += a * *b;
#endif
}

/* Computes rows x (vecs * LANES) of C from (i, j) on, in registers over all of k. `rows` and `vecs`
 * are constants after inlining: the loops over them are unrolled, and acc stays in registers. */
static inline DL_BODY void JOIN(dl_tile_block, LANES)(const dl_tile *t, size_t i, size_t j,
                                                      int rows, int vecs)
{
    VEC acc[12][2];
    float *c = t->c + i * t->c_row + j;
    const float *a = t->a + i * t->a_row, *b = t->b + j;
    size_t k = t->k, a_row = t->a_row, a_col = t->a_col, b_row = t->b_row, c_row = t->c_row;
#pragma GCC unroll DL_UNROLLED_ROWS
    for (int r = 0; r < rows; r++)
#pragma GCC unroll DL_UNROLLED_VECS
        for (int v = 0; v < vecs; v++)
            acc[r][v] = t->add ? *(const VEC *)(c + (size_t)r * c_row + v * LANES) : (VEC){0};
    for (size_t pair = 0;; pair++) {
        for (size_t l = 0; l < k; l++, a += a_col, b += b_row) {
            VEC bv[2];
#pragma GCC unroll DL_UNROLLED_VECS
            for (int v = 0; v < vecs; v++)
                bv[v] = *(const VEC *)(b + v * LANES);
#pragma GCC unroll DL_UNROLLED_ROWS
            for (int r = 0; r < rows; r++)
#pragma GCC unroll DL_UNROLLED_VECS
                for (int v = 0; v < vecs; v++)
                    JOIN(dl_tile_fma, LANES)(&acc[r][v], a[(size_t)r * a_row], &bv[v]);
        }
        if (pair == t->n_more) break;
        a = t->more[pair].a + i * a_row;
        b = t->more[pair].b + j;
    }
#pragma GCC unroll DL_UNROLLED_ROWS
    for (int r = 0; r < rows; r++)
#pragma GCC unroll DL_UNROLLED_VECS
        for (int v = 0; v < vecs; v++)
            *(VEC *)(c + (size_t)r * c_row + v * LANES) = acc[r][v];
}

/* All m rows of two columns of vectors (or one), `rows` at a time and then by smaller steps. */
static inline DL_BODY void JOIN(dl_tile_strip, LANES)(const dl_tile *t, size_t j, int rows,
                                                      int vecs)
{
    size_t i = 0;
    for (; i + (size_t)rows <= t->m; i += (size_t)rows)
        JOIN(dl_tile_block, LANES)(t, i, j, rows, vecs);
    for (; i + 4 <= t->m; i += 4)
        JOIN(dl_tile_block, LANES)(t, i, j, 4, vecs);
    for (; i < t->m; i++)
        JOIN(dl_tile_block, LANES)(t, i, j, 1, vecs);
}

/* Two vectors at a time, since one load of A's element then serves both; one for an odd rest. */
static inline DL_BODY void JOIN(dl_tile_product, LANES)(const dl_tile *t, int rows)
{
    size_t j = 0;
    for (; j + 2 * LANES <= t->n; j += 2 * LANES)
        JOIN(dl_tile_strip, LANES)(t, j, rows, 2);
    for (; j < t->n; j += LANES)
        JOIN(dl_tile_strip, LANES)(t, j, rows, 1);
}

/* Returns the largest of n, or -infinity if n is 0; a NaN may be passed over. A vector comparison
 * sets all bits of a lane or none, which select it without a branch. */
static inline DL_BODY float JOIN(dl_row_max, LANES)(const float *x, size_t n)
{
    float top = -INFINITY;
    size_t i = 0;
    VEC tops = (VEC){0} - INFINITY;
    for (; i + LANES <= n; i += LANES) {
        VEC v = *(const VEC *)(x + i);
        INTS larger = v > tops;
        tops = (VEC)((larger & (INTS)v) | (~larger & (INTS)tops));
    }
    for (int lane = 0; lane < LANES; lane++)
        top = tops[lane] > top ? tops[lane] : top;
    for (; i < n; i++)
        top = x[i] > top ? x[i] : top;
    return top;
}

#undef VEC
#undef INTS
#undef JOIN
#undef JOIN_
