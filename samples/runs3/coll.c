/* coll MODE [ALG,ALG,..] : known collectives with known skew. MODE: all allreduce bcast alltoall allgather barrier reduce
 * Instances start on a common CLOCK_REALTIME grid (rank 0's start + planned times), then the late rank of the instance sleeps.
 * ALG (Open MPI, with --mca coll_tuned_use_dynamic_rules 1): for each, coll_tuned_<MODE>_algorithm is set through MPI_T and a new communicator is made (MPI_Comm_dup), which uses it.
 * COLLSPLIT=parity: split communicators {0,2} and {1,3}; else ranks 1.. in reverse order (rank 0 takes no part).
 * log: $TRUTH_DIR/coll.<rank>.csv */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <errno.h>
extern void truth_on(int) __attribute__((weak));
enum { BAR, BC, RED, AR, AG, RSB, A2A, SC, GA };
static const char *NM[]={"Barrier","Bcast","Reduce","Allreduce","Allgather","Reduce_scatter_block","Alltoall","Scatter","Gather"};
typedef struct { int op, bytes, split; } inst;
/* bytes: per rank what the call's count says (Alltoall, Scatter, Gather, Reduce_scatter_block: one block) */
static const inst ALL[]={
 {A2A,8,0},{BAR,0,0},{BC,64,0},{RED,8,0},{AR,8,0},{AG,64,0},{RSB,64,0},{A2A,64,0},{SC,64,0},{GA,64,0},
 {BAR,0,1},{BC,2048,1},{RED,4096,1},{AR,8,1},{AG,1024,1},{A2A,512,1},{AR,4096,1},
 {AR,4096,0},{BC,8192,0},{RED,4096,0},{AG,4096,0},{RSB,4096,0},{A2A,4096,0},{SC,4096,0},{GA,4096,0},
 {BAR,0,0},{AR,8,0},{AR,8,0},{AR,4096,0},{BC,64,0},{BC,64,0},{A2A,1024,0},{AG,512,0},{RED,8,0},{BAR,0,0},
 {AR,262144,0},{BC,65536,0},{RED,32768,0},{AG,16384,0},{RSB,16384,0},{A2A,16384,0},{SC,16384,0},{GA,16384,0},
 {BAR,0,1},{AR,8,1},{BC,64,1},{AR,4096,0},{BAR,0,0},{AR,8,0},{A2A,64,0},{BC,4096,0},{BAR,0,0},{AR,8,0} };
static const inst ARs[]={{AR,8,0},{AR,4096,0},{AR,65536,0},{AR,8,1},{AR,4096,1},{AR,8,0},{AR,4096,0},{AR,262144,0}};
static const inst BCs[]={{BC,8,0},{BC,4096,0},{BC,65536,0},{BC,4096,1},{BC,8,0},{BC,4096,0},{BC,65536,0}};
static const inst A2s[]={{A2A,8,0},{A2A,1024,0},{A2A,16384,0},{A2A,1024,1},{A2A,8,0},{A2A,1024,0},{A2A,16384,0}};
static const inst AGs[]={{AG,8,0},{AG,4096,0},{AG,32768,0},{AG,4096,1},{AG,8,0},{AG,4096,0},{AG,32768,0}};
static const inst BAs[]={{BAR,0,0},{BAR,0,1},{BAR,0,0},{BAR,0,0},{BAR,0,0},{BAR,0,1},{BAR,0,0},{BAR,0,0}};
static const inst REs[]={{RED,8,0},{RED,4096,0},{RED,65536,0},{RED,4096,1},{RED,8,0},{RED,4096,0},{RED,65536,0}};
static const struct { const char*m; const inst*l; int n; } M[]={{"all",ALL,sizeof ALL/sizeof*ALL},{"allreduce",ARs,8},{"bcast",BCs,7},{"alltoall",A2s,7},{"allgather",AGs,7},{"barrier",BAs,8},{"reduce",REs,7}};
static int me,np; static long long now(void){ struct timespec t; clock_gettime(CLOCK_REALTIME,&t); return t.tv_sec*1000000000LL+t.tv_nsec; }
static void until(long long t){ struct timespec s={t/1000000000LL,t%1000000000LL}; while(clock_nanosleep(CLOCK_REALTIME,TIMER_ABSTIME,&s,0)==EINTR); }
static unsigned rs=777; static unsigned rnd(void){ rs=rs*1103515245u+12345u; return (rs>>16)&0x7fff; }
/* Open MPI: coll_tuned_<MODE>_algorithm. MPICH: MPIR_CVAR_<MODE>_INTRA_ALGORITHM, ALG is the number of the enumeration (mpir_cvars.h). */
static int setalg(const char*mode,int alg){ char n[80],u[40]; int ix,cnt,i; MPI_T_cvar_handle h; snprintf(n,sizeof n,"coll_tuned_%s_algorithm",mode);
  int r=MPI_T_cvar_get_index(n,&ix); if(r){ for(i=0;mode[i]&&i<39;i++) u[i]=mode[i]-32; u[i]=0; snprintf(n,sizeof n,"MPIR_CVAR_%s_INTRA_ALGORITHM",u); r=MPI_T_cvar_get_index(n,&ix); }
  if(r) return r; r=MPI_T_cvar_handle_alloc(ix,NULL,&h,&cnt); if(r) return r; r=MPI_T_cvar_write(h,&alg); MPI_T_cvar_handle_free(&h); return r; }
int main(int c,char**v){
  int pv; MPI_Init(&c,&v); MPI_T_init_thread(MPI_THREAD_SINGLE,&pv); if(truth_on) truth_on(1); MPI_Comm_rank(MPI_COMM_WORLD,&me); MPI_Comm_size(MPI_COMM_WORLD,&np);
  const char*m=c>1?v[1]:"all"; char al[128]; snprintf(al,sizeof al,"%s",c>2?v[2]:""); int k; for(k=0;k<7;k++) if(!strcmp(M[k].m,m)) break; if(k==7) return 2;
  char h[MPI_MAX_PROCESSOR_NAME]; int hl; MPI_Get_processor_name(h,&hl); printf("rank %d of %d on %s mode %s alg %s\n",me,np,h,m,al); fflush(stdout);
  size_t sz=2<<20; double *a=malloc(sz),*b=malloc(sz); for(size_t i=0;i<sz/8;i++){ a[i]=me+1; b[i]=0; }
  const char*par=getenv("COLLSPLIT"); int parity=par&&!strcmp(par,"parity"); long long base=0; int idx=0; 
  char f[512]; snprintf(f,sizeof f,"%s/coll.%d.csv",getenv("TRUTH_DIR"),me); FILE*o=fopen(f,"w"); setvbuf(o,0,_IOFBF,1<<18);
  fprintf(o,"index,comm,comm_ranks,alg,operation,bytes,root_world,late_rank,sleep_us,planned_ns,entry_ns,exit_ns\n");
  char*sv=0,*w=strtok_r(al,",",&sv);
  do { int alg=w?atoi(w):-1; if(alg>=0){ int r=setalg(m,alg); if(r&&!me) printf("setting %s algorithm %d: MPI_T error %d\n",m,alg,r); }
    MPI_Comm wc,sc; if(alg>=0) MPI_Comm_dup(MPI_COMM_WORLD,&wc); else wc=MPI_COMM_WORLD;
    if(parity) MPI_Comm_split(wc,me%2,me,&sc); else MPI_Comm_split(wc,me==0?MPI_UNDEFINED:1,-me,&sc);
    base=now()+120000000LL; { long long t0=now(),t1; MPI_Bcast(&base,1,MPI_LONG_LONG,0,MPI_COMM_WORLD); t1=now(); fprintf(o,"-1,world,,-1,Bcast,8,0,-1,0,0,%lld,%lld\n",t0,t1); } /* the start time: index -1 */
    for(int i=0;i<M[k].n;i++,idx++){ inst I=M[k].l[i]; int sp=I.split; static const int SL[]={20,5,1,0};
      int us=1000*SL[rnd()%7>4?3:rnd()%3]; int late; int root=rnd(); 
      char mem[64]; int n; MPI_Comm q=sp?sc:wc; int in=q!=MPI_COMM_NULL;
      if(!sp){ n=np; late=rnd()%np; root%=n; mem[0]=0; for(int z=0;z<np;z++) sprintf(mem+strlen(mem),"%s%d",z?" ":"",z); }
      else if(parity){ n=np/2; int g=me%2; late=rnd()%n; late=late*2+g; root%=n; mem[0]=0; for(int z=g;z<np;z+=2) sprintf(mem+strlen(mem),"%s%d",mem[0]?" ":"",z); }
      else { n=np-1; late=1+rnd()%n; root%=n; mem[0]=0; for(int z=np-1;z>0;z--) sprintf(mem+strlen(mem),"%s%d",mem[0]?" ":"",z); }
      if(!us) late=-1;
      int rw=!sp?root:parity?root*2+me%2:np-1-root; if(I.op!=BC&&I.op!=RED&&I.op!=SC&&I.op!=GA) rw=-1;
      long long pl=base; base+=(I.bytes>=200000?900:I.bytes>16000?450:I.bytes>8000?250:I.bytes>=4096?120:80)*1000000LL; if(!idx) base+=700000000LL; /* first instance: connections are made */
      until(pl); if(me==late) until(now()+us*1000LL);
      if(!in) continue;
      int cnt=I.bytes/8; long long t0=now(),t1;
      switch(I.op){
       case BAR: MPI_Barrier(q); break;
       case BC: MPI_Bcast(a,cnt,MPI_DOUBLE,root,q); break;
       case RED: MPI_Reduce(a,b,cnt,MPI_DOUBLE,MPI_SUM,root,q); break;
       case AR: MPI_Allreduce(a,b,cnt,MPI_DOUBLE,MPI_SUM,q); break;
       case AG: MPI_Allgather(a,cnt,MPI_DOUBLE,b,cnt,MPI_DOUBLE,q); break;
       case RSB: MPI_Reduce_scatter_block(a,b,cnt,MPI_DOUBLE,MPI_SUM,q); break;
       case A2A: MPI_Alltoall(a,cnt,MPI_DOUBLE,b,cnt,MPI_DOUBLE,q); break;
       case SC: MPI_Scatter(a,cnt,MPI_DOUBLE,b,cnt,MPI_DOUBLE,root,q); break;
       case GA: MPI_Gather(a,cnt,MPI_DOUBLE,b,cnt,MPI_DOUBLE,root,q); break; }
      t1=now(); if(I.op==AR){ double want=0; if(!sp) want=np*(np+1)/2.; else if(!parity) want=np*(np+1)/2.-1; if(want&&(b[0]!=want||b[cnt-1]!=want)) printf("rank %d instance %d WRONG %g %g\n",me,idx,b[0],b[cnt-1]); }
      fprintf(o,"%d,%s,%s,%d,%s,%d,%d,%d,%d,%lld,%lld,%lld\n",idx,sp?"split":alg>=0?"dup":"world",mem,alg,NM[I.op],I.bytes,rw,late,me==late?us:0,pl,t0,t1);
      for(size_t z=0;z<(size_t)cnt&&I.op==BC;z++) a[z]=me+1; }
    until(base); if(sc!=MPI_COMM_NULL) MPI_Comm_free(&sc); if(wc!=MPI_COMM_WORLD) MPI_Comm_free(&wc);
  } while(w&&(w=strtok_r(0,",",&sv)));
  MPI_T_finalize(); fclose(o); MPI_Barrier(MPI_COMM_WORLD); if(!me) printf("%d instances\n",idx); if(truth_on) truth_on(0); MPI_Finalize(); return 0; }
