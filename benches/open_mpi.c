/* How long MPI_Allreduce takes: what benches/emulator.rs measures, for comparison. Run by scripts/compare-open-mpi. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int ascending(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

int main(int argc, char **argv) {
    const size_t sizes[] = {8, 4096, 64 << 10, 2 << 20, 16 << 20};
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int count = (int)(sizes[s] / sizeof(float));
        int calls = sizes[s] >= 1 << 20 ? 60 : 2000, warm_up = 5;
        float *send = malloc(sizes[s]), *recv = malloc(sizes[s]);
        double *seconds = malloc(calls * sizeof *seconds);
        if (!send || !recv || !seconds) {
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        for (int i = 0; i < count; i++) {
            send[i] = (float)(i % 100);
            recv[i] = 0;
        }
        for (int call = -warm_up; call < calls; call++) {
            MPI_Barrier(MPI_COMM_WORLD);
            double start = MPI_Wtime();
            MPI_Allreduce(send, recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            if (call >= 0) {
                seconds[call] = MPI_Wtime() - start;
            }
        }
        qsort(seconds, calls, sizeof *seconds, ascending);
        if (rank == 0) {
            printf("Open MPI %9zu B: median %9.1f us, least %9.1f us\n", sizes[s], seconds[calls / 2] * 1e6,
                   seconds[0] * 1e6);
        }
        free(send);
        free(recv);
        free(seconds);
    }
    MPI_Finalize();
    return 0;
}
