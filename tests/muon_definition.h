/* muon_definition.h - a step of Muon in float64, as nn/inner_muon.c states it, for tests. */
#ifndef DL_TESTS_MUON_DEFINITION_H
#define DL_TESTS_MUON_DEFINITION_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct muon_matrix {
    size_t rows, columns;
    double *p, *m; /* [rows][columns]: parameters and momentum, the caller's */
    double mu;
    bool nesterov;
    int steps; /* of the Newton-Schulz iteration */
} muon_matrix;

/* c[m][n] = a[m][k] b[k][n] */
static inline void muon_product(double *c, const double *a, const double *b, size_t m, size_t n,
                                size_t k)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            double sum = 0;
            for (size_t l = 0; l < k; l++)
                sum += a[i * k + l] * b[l * n + j];
            c[i * n + j] = sum;
        }
}

/* x becomes a x + (b s + c s s) x with s = x x^T; no side is preferred. */
static inline void muon_iterate(double *x, size_t rows, size_t columns)
{
    double *t = malloc(rows * columns * sizeof *t), *s = malloc(rows * rows * sizeof *s);
    double *mix = malloc(rows * rows * sizeof *mix), *out = malloc(rows * columns * sizeof *out);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            t[j * rows + i] = x[i * columns + j];
    muon_product(s, x, t, rows, rows, columns);
    muon_product(mix, s, s, rows, rows, rows);
    for (size_t i = 0; i < rows * rows; i++)
        mix[i] = -4.7750 * s[i] + 2.0315 * mix[i];
    muon_product(out, mix, x, rows, columns, rows);
    for (size_t i = 0; i < rows * columns; i++)
        x[i] = 3.4445 * x[i] + out[i];
    free(t), free(s), free(mix), free(out);
}

/* Takes one step with the clipped gradient g[rows][columns]. */
static inline void muon_step(const muon_matrix *x, const double *g, double lr, double decay)
{
    const size_t n = x->rows * x->columns;
    const double longer = (double)(x->rows > x->columns ? x->rows : x->columns);
    double norm = 0, *u = malloc(n * sizeof *u);
    for (size_t i = 0; i < n; i++) {
        x->m[i] = x->mu * x->m[i] + (1 - x->mu) * g[i];
        u[i] = x->nesterov ? x->mu * x->m[i] + (1 - x->mu) * g[i] : x->m[i];
        norm += u[i] * u[i];
    }
    for (size_t i = 0; i < n; i++)
        u[i] /= sqrt(norm);
    for (int k = 0; k < x->steps; k++)
        muon_iterate(u, x->rows, x->columns);
    for (size_t i = 0; i < n; i++)
        x->p[i] = x->p[i] * (1 - lr * decay) - lr * 0.2 * sqrt(longer) * u[i];
    free(u);
}

#endif
