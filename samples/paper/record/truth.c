/* Logs the sends of the program (a line for each) and its collective calls (a line for each call and
 * rank).
 *
 * NPB calls MPI from Fortran. Its calls reach these wrappers before those of Score-P: a wrapper logs the
 * call and passes it to the C function, which Score-P wraps. Both see the same run, and neither reads
 * the other.
 *
 * At MPI_Finalize, each rank writes to $TRUTH_DIR: sends.RANK.csv and colls.RANK.csv, with ranks of
 * MPI_COMM_WORLD and sizes in bytes. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef MPI_Fint F;

struct send {
    long long t_ns, bytes;
    int dst, tag;
};
static struct send *sends;
static size_t send_count, send_room;

struct coll {
    const char *call;
    long long calls, bytes;
};
static struct coll colls[16];
static int coll_count;

/* A rank that waits sleeps, because all guests share few processors. */
int sched_yield(void) {
    struct timespec pause = {0, 400000};
    nanosleep(&pause, 0);
    return 0;
}

static long long size_of(F count, F type) {
    int size = 0;
    PMPI_Type_size(MPI_Type_f2c(type), &size);
    return (long long)size * count;
}

static void log_send(F count, F type, F dst, F tag, F comm) {
    int local = dst, world;
    MPI_Group here, all;
    struct timespec now;
    if (dst == MPI_PROC_NULL)
        return;
    PMPI_Comm_group(MPI_Comm_f2c(comm), &here);
    PMPI_Comm_group(MPI_COMM_WORLD, &all);
    PMPI_Group_translate_ranks(here, 1, &local, all, &world);
    PMPI_Group_free(&here);
    PMPI_Group_free(&all);
    if (send_count == send_room) {
        send_room = send_room ? 2 * send_room : 4096;
        sends = realloc(sends, send_room * sizeof *sends);
        if (!sends)
            abort();
    }
    clock_gettime(CLOCK_REALTIME, &now);
    sends[send_count++] =
        (struct send){now.tv_sec * 1000000000LL + now.tv_nsec, size_of(count, type), world, tag};
}

static void log_coll(const char *call, long long bytes) {
    int i = 0;
    while (i < coll_count && strcmp(colls[i].call, call))
        i++;
    if (i == 16)
        abort();
    if (i == coll_count)
        colls[coll_count++].call = call;
    colls[i].calls++;
    colls[i].bytes += bytes;
}

static FILE *file_of(const char *kind, int rank) {
    char path[512];
    const char *folder = getenv("TRUTH_DIR");
    FILE *file;
    snprintf(path, sizeof path, "%s/%s.%d.csv", folder ? folder : ".", kind, rank);
    if (!(file = fopen(path, "w"))) {
        perror(path);
        abort();
    }
    return file;
}

static void write_log(void) {
    int rank;
    FILE *file;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    file = file_of("sends", rank);
    fprintf(file, "t_ns,src,dst,tag,bytes\n");
    for (size_t i = 0; i < send_count; i++)
        fprintf(file, "%lld,%d,%d,%d,%lld\n", sends[i].t_ns, rank, sends[i].dst, sends[i].tag, sends[i].bytes);
    fclose(file);
    file = file_of("colls", rank);
    fprintf(file, "rank,call,calls,bytes\n");
    for (int i = 0; i < coll_count; i++)
        fprintf(file, "%d,%s,%lld,%lld\n", rank, colls[i].call, colls[i].calls, colls[i].bytes);
    fclose(file);
}

void mpi_finalize_(F *error) {
    write_log();
    *error = MPI_Finalize();
}
void mpi_send_(void *data, F *count, F *type, F *dst, F *tag, F *comm, F *error) {
    log_send(*count, *type, *dst, *tag, *comm);
    *error = MPI_Send(data, *count, MPI_Type_f2c(*type), *dst, *tag, MPI_Comm_f2c(*comm));
}
void mpi_isend_(void *data, F *count, F *type, F *dst, F *tag, F *comm, F *request, F *error) {
    MPI_Request started;
    log_send(*count, *type, *dst, *tag, *comm);
    *error = MPI_Isend(data, *count, MPI_Type_f2c(*type), *dst, *tag, MPI_Comm_f2c(*comm), &started);
    *request = MPI_Request_c2f(started);
}
void mpi_barrier_(F *comm, F *error) {
    log_coll("barrier", 0);
    *error = MPI_Barrier(MPI_Comm_f2c(*comm));
}
void mpi_bcast_(void *data, F *count, F *type, F *root, F *comm, F *error) {
    log_coll("bcast", size_of(*count, *type));
    *error = MPI_Bcast(data, *count, MPI_Type_f2c(*type), *root, MPI_Comm_f2c(*comm));
}
void mpi_reduce_(void *data, void *result, F *count, F *type, F *op, F *root, F *comm, F *error) {
    log_coll("reduce", size_of(*count, *type));
    *error = MPI_Reduce(data, result, *count, MPI_Type_f2c(*type), MPI_Op_f2c(*op), *root, MPI_Comm_f2c(*comm));
}
void mpi_allreduce_(void *data, void *result, F *count, F *type, F *op, F *comm, F *error) {
    log_coll("allreduce", size_of(*count, *type));
    *error = MPI_Allreduce(data, result, *count, MPI_Type_f2c(*type), MPI_Op_f2c(*op), MPI_Comm_f2c(*comm));
}
void mpi_alltoall_(void *data, F *count, F *type, void *result, F *result_count, F *result_type, F *comm, F *error) {
    int ranks;
    PMPI_Comm_size(MPI_Comm_f2c(*comm), &ranks);
    log_coll("alltoall", size_of(*count, *type) * ranks);
    *error = MPI_Alltoall(data, *count, MPI_Type_f2c(*type), result, *result_count, MPI_Type_f2c(*result_type),
                          MPI_Comm_f2c(*comm));
}
