/* vary ITER SEED: every way to send point-to-point, over several communicators. World ranks in the truth come from libtruth. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
extern void truth_on(int) __attribute__((weak));
static unsigned rs; static unsigned rnd(void){ rs=rs*1103515245u+12345u; return (rs>>16)&0x7fff; }
int main(int c,char**v){
 int me,np,prov; MPI_Init_thread(&c,&v,MPI_THREAD_MULTIPLE,&prov); if(truth_on) truth_on(1);
 MPI_Comm_rank(MPI_COMM_WORLD,&me); MPI_Comm_size(MPI_COMM_WORLD,&np); int it=c>1?atoi(v[1]):20; rs=c>2?atoi(v[2]):1;
 char h[256]; int hl; MPI_Get_processor_name(h,&hl); printf("rank %d of %d on %s vary iter %d thread %d\n",me,np,h,it,prov); fflush(stdout);
 MPI_Comm dup,rev,sub,cart; MPI_Comm_dup(MPI_COMM_WORLD,&dup); MPI_Comm_split(MPI_COMM_WORLD,0,np-me,&rev); MPI_Comm_split(MPI_COMM_WORLD,me%2,-me,&sub);
 int dims[1]={np},per[1]={1}; MPI_Cart_create(MPI_COMM_WORLD,1,dims,per,1,&cart); MPI_Comm cs[4]={MPI_COMM_WORLD,dup,rev,cart};
 char*sb=malloc(8<<20),*rb=malloc(8<<20),*bs=malloc(1<<20); memset(sb,me,8<<20); MPI_Buffer_attach(bs,1<<20);
 int *ub,fl; MPI_Comm_get_attr(MPI_COMM_WORLD,MPI_TAG_UB,&ub,&fl); int tags[6]={0,1,77,32767,65536,1000000};
 MPI_Datatype vec; MPI_Type_vector(100,3,7,MPI_INT,&vec); MPI_Type_commit(&vec);
 static const int sz[]={0,1,4,8,17,64,200,1000,1024,3000,4096,8000,8192,9000,20000,65536,100000,400000,2000000};
 for(int i=0;i<it;i++) for(int a=0;a<np;a++){ /* the same draws on all ranks */
  int b=rnd()%np; if(b==a) b=(a+1)%np; MPI_Comm cm=cs[rnd()%4]; int n=sz[rnd()%19], kind=rnd()%9, tag=tags[rnd()%6], any=rnd()%3==0; if(tag>*ub) tag=5; if(any) tag=2000+i*np+a;
  int s,d; MPI_Group gw,g; MPI_Comm_group(MPI_COMM_WORLD,&gw); MPI_Comm_group(cm,&g); MPI_Group_translate_ranks(gw,1,&a,g,&s); MPI_Group_translate_ranks(gw,1,&b,g,&d); MPI_Group_free(&g); MPI_Group_free(&gw);
  if(kind==2&&n>100000) kind=0;
  if(me==a){ MPI_Request q;
   switch(kind){ case 0: MPI_Send(sb,n,MPI_BYTE,d,tag,cm); break; case 1: MPI_Ssend(sb,n,MPI_BYTE,d,tag,cm); break; case 2: MPI_Bsend(sb,n,MPI_BYTE,d,tag,cm); break;
    case 3: MPI_Isend(sb,n,MPI_BYTE,d,tag,cm,&q); MPI_Wait(&q,MPI_STATUS_IGNORE); break; case 4: MPI_Issend(sb,n,MPI_BYTE,d,tag,cm,&q); MPI_Wait(&q,MPI_STATUS_IGNORE); break;
    case 5: MPI_Send(sb,1+n/1200%50,vec,d,tag,cm); break; case 6: MPI_Send(sb,n/8,MPI_DOUBLE,d,tag,cm); break;
    case 7: { MPI_Request qs[5]; for(int k=0;k<5;k++) MPI_Isend(sb+k,n/5,MPI_BYTE,d,tag,cm,&qs[k]); MPI_Waitall(5,qs,MPI_STATUSES_IGNORE); break; }
    case 8: MPI_Rsend(sb,n,MPI_BYTE,d,tag,cm); break; } }
  if(me==b){ MPI_Status st; int k=kind==7?5:1; for(int j=0;j<k;j++){ int f=any?MPI_ANY_SOURCE:s, t=tag;
    if(kind==5) MPI_Recv(rb,1+n/1200%50,vec,f,t,cm,&st); else if(kind==4){ MPI_Message m; MPI_Mprobe(f,t,cm,&m,&st); MPI_Mrecv(rb,8<<20,MPI_BYTE,&m,&st);} else if(kind==6) MPI_Recv(rb,1<<20,MPI_DOUBLE,f,t,cm,&st); else MPI_Recv(rb,8<<20,MPI_BYTE,f,t,cm,&st);} }
  if(a==np-1&&i%8==7){ int x=me,y; MPI_Allreduce(&x,&y,1,MPI_INT,MPI_SUM,sub); MPI_Barrier(rev); }
 }
 MPI_Barrier(MPI_COMM_WORLD); if(me==0) printf("done\n");
 if(truth_on) truth_on(0); MPI_Finalize(); return 0; }
