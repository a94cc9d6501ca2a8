/* One solve by ScaLAPACK (pdgesv: LU with partial pivoting), as benchmarks/programs/abft.py does it:

       mpiexec -n 4 scalapack ORDER BLOCK P Q

   Rank 0 prints seconds, the CPU time of all ranks in seconds, and the residual, as JSON. A number of the matrix, between
   -0.5 and 0.5, follows from its place, so it needs no message. */

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

extern void Cblacs_get(int, int, int *);
extern void Cblacs_gridinit(int *, const char *, int, int);
extern void Cblacs_gridinfo(int, int *, int *, int *, int *);
extern int numroc_(const int *, const int *, const int *, const int *, const int *);
extern void descinit_(int *, const int *, const int *, const int *, const int *, const int *, const int *, const int *,
                      const int *, int *);
extern void pdgesv_(const int *, const int *, double *, const int *, const int *, const int *, int *, double *, const int *,
                    const int *, const int *, int *);
extern void pdgemv_(const char *, const int *, const int *, const double *, const double *, const int *, const int *,
                    const int *, const double *, const int *, const int *, const int *, const int *, const double *, double *,
                    const int *, const int *, const int *, const int *);
extern double pdlange_(const char *, const int *, const int *, const double *, const int *, const int *, const int *, double *);

static const int ZERO = 0, ONE = 1;

static double number(uint64_t row, uint64_t column) { /* splitmix64 */
    uint64_t z = (row << 32 | column) + 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) / 9007199254740992.0 - 0.5;
}

static double cpu_s(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec + 1e-6 * (used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/* The rank's own part of a matrix; columns from `shift` on are those of the right-hand sides. */
static void fill(double *part, int rows, int columns, int block, int p, int q, int P, int Q, uint64_t shift) {
    for (int j = 0; j < columns; j++)
        for (int i = 0; i < rows; i++)
            part[(size_t)j * rows + i] = number((uint64_t)(i / block * P + p) * block + i % block,
                                                (uint64_t)(j / block * Q + q) * block + j % block + shift);
}

int main(int count, char **words) {
    MPI_Init(&count, &words);
    if (count != 5)
        MPI_Abort(MPI_COMM_WORLD, 2);
    int n = atoi(words[1]), block = atoi(words[2]), P = atoi(words[3]), Q = atoi(words[4]), p, q, context, info;
    Cblacs_get(-1, 0, &context);
    Cblacs_gridinit(&context, "Row", P, Q);
    Cblacs_gridinfo(context, &P, &Q, &p, &q);
    int rows = numroc_(&n, &block, &p, &ZERO, &P), columns = numroc_(&n, &block, &q, &ZERO, &Q);
    int right = numroc_(&ONE, &block, &q, &ZERO, &Q), leading = rows > 1 ? rows : 1, of_a[9], of_b[9];
    descinit_(of_a, &n, &n, &block, &block, &ZERO, &ZERO, &context, &leading, &info);
    descinit_(of_b, &n, &ONE, &block, &block, &ZERO, &ZERO, &context, &leading, &info);
    size_t whole = sizeof(double) * leading * (columns > 0 ? columns : 1), one = sizeof(double) * leading;
    double *a = malloc(whole), *x = malloc(one), *r = malloc(one), *work = malloc(sizeof(double) * (n + leading));
    int *pivots = malloc(sizeof(int) * (rows + block));
    if (!a || !x || !r || !work || !pivots)
        MPI_Abort(MPI_COMM_WORLD, 3);
    fill(a, rows, columns, block, p, q, P, Q, 0);
    fill(x, rows, right, block, p, q, P, Q, (uint64_t)n);

    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime(), used = cpu_s();
    pdgesv_(&n, &ONE, a, &ONE, &ONE, of_a, pivots, x, &ONE, &ONE, of_b, &info);
    used = cpu_s() - used;
    MPI_Barrier(MPI_COMM_WORLD);
    double seconds = MPI_Wtime() - began, all, minus = -1, plus = 1;
    MPI_Reduce(&used, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);

    fill(a, rows, columns, block, p, q, P, Q, 0);
    fill(r, rows, right, block, p, q, P, Q, (uint64_t)n);
    double of_right = pdlange_("I", &n, &ONE, r, &ONE, &ONE, of_b, work);
    pdgemv_("N", &n, &n, &minus, a, &ONE, &ONE, of_a, x, &ONE, &ONE, of_b, &ONE, &plus, r, &ONE, &ONE, of_b, &ONE);
    double off = pdlange_("I", &n, &ONE, r, &ONE, &ONE, of_b, work);
    double scale = pdlange_("I", &n, &n, a, &ONE, &ONE, of_a, work) * pdlange_("I", &n, &ONE, x, &ONE, &ONE, of_b, work);
    if (p == 0 && q == 0)
        printf("{\"seconds\": %.6f, \"cpu\": %.6f, \"residual\": %.6f}\n", seconds, all,
               off / (1.1102230246251565e-16 * (scale + of_right) * n));
    MPI_Finalize();
    return info != 0;
}
