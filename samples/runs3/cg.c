/* cg ITER SLOWRANK(-1: none) D_US [BASE_US] : the communication of a conjugate gradient solver on a ring of ranks. Per iteration: halo (Isend/Irecv of 4096 B to the
 * left and 8192 B to the right, periodic), computation of BASE_US/5 (sleep), Allreduce of 8 B, computation of BASE_US (SLOWRANK: D_US more), Allreduce of 16 B.
 * log: $TRUTH_DIR/straggler.<rank>.csv: start_ns before the halo, halo_end_ns after it, compute_end_ns after the long computation, end_ns after the last Allreduce */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
extern void truth_on(int) __attribute__((weak));
static long long now(void){ struct timespec t; clock_gettime(CLOCK_REALTIME,&t); return t.tv_sec*1000000000LL+t.tv_nsec; }
int main(int c,char**v){ int me,np; MPI_Init(&c,&v); if(truth_on) truth_on(1); MPI_Comm_rank(MPI_COMM_WORLD,&me); MPI_Comm_size(MPI_COMM_WORLD,&np);
  int it=c>1?atoi(v[1]):30, slow=c>2?atoi(v[2]):-1, D=c>3?atoi(v[3]):0, base=c>4?atoi(v[4]):10000; static char sb[2][8192],rb[2][8192]; memset(sb,me+1,sizeof sb);
  char h[MPI_MAX_PROCESSOR_NAME]; int hl; MPI_Get_processor_name(h,&hl); printf("rank %d of %d on %s slow %d by %d us, base %d us\n",me,np,h,slow,D,base); fflush(stdout);
  int right=(me+1)%np,left=(me+np-1)%np; char f[512]; snprintf(f,sizeof f,"%s/straggler.%d.csv",getenv("TRUTH_DIR"),me); FILE*o=fopen(f,"w"); setvbuf(o,0,_IOFBF,1<<18);
  fprintf(o,"rank,iteration,extra_us,start_ns,compute_end_ns,halo_end_ns,end_ns\n"); double x[2]={me,1},y[2];
  for(int i=0;i<it;i++){ long long t0=now(); MPI_Request q[4];
    MPI_Irecv(rb[0],4096,MPI_BYTE,right,1,MPI_COMM_WORLD,&q[0]); MPI_Irecv(rb[1],8192,MPI_BYTE,left,2,MPI_COMM_WORLD,&q[1]);
    MPI_Isend(sb[0],4096,MPI_BYTE,left,1,MPI_COMM_WORLD,&q[2]); MPI_Isend(sb[1],8192,MPI_BYTE,right,2,MPI_COMM_WORLD,&q[3]);
    MPI_Waitall(4,q,MPI_STATUSES_IGNORE); long long t1=now(); usleep(base/5); MPI_Allreduce(x,y,1,MPI_DOUBLE,MPI_SUM,MPI_COMM_WORLD);
    usleep(base+(me==slow?D:0)); long long t2=now(); MPI_Allreduce(x,y,2,MPI_DOUBLE,MPI_SUM,MPI_COMM_WORLD); long long t3=now();
    fprintf(o,"%d,%d,%d,%lld,%lld,%lld,%lld\n",me,i,me==slow?D:0,t0,t2,t1,t3); }
  fclose(o); if(truth_on) truth_on(0); MPI_Finalize(); return 0; }
