/* core.pml -- the lease table: a fresh bucket array per generation, growing, shrinking, rebuilding in place;
 * a wheel whose registrations survive recycling; handles checked by life + key + token; reasons of ends; marks of
 * records, and those who wait; shutting and opening.  Included by s.pml.  Rule numbers in comments: see README.md.
 *
 * Every load, store and CAS of a shared word is ONE atomic step (sequential consistency); every
 * `goto` from one atomic block to another is a point where other processes may run.
 *   hd[a*MB+b]  word of bucket b of array a : version | first cell | flag
 *   st[n]       state word of cell n        : life | tag | deadline
 *   key,tok,nxt                             : written only while cell n is private
 *   par[a]      array a still names its parent (array a-1)
 *   cur         the newest array.  Each process caches an array in its local c.
 * Free cells: one shared pool, nondeterministic pop (covers per-thread lists); LOWPOP: lowest first.
 * Sizes of the arrays: -DSEQ.  Switches: EXP (clock 0..MAXT), SHARED (two users of one handle),
 * FINE (each store into a private cell is a step), BOUND (rule 13: walks reload after NN cells),
 * WFRZ (the wheel also looks at FROZEN cells), MOVE (between operations a thread's cache may have been
 * refreshed by its other operations, or the handle moved to a thread with an older cache), NPW
 * (a look of the wheel counts as progress), RELWORD (a release first tries the word of the grant (G);
 * tokens are then base + version, the base of array a is BSTEP*a, and words hold versions), SHED (rebuilds, 12),
 * RECORD (records and marks, 8), DYNBASE with VLIM and VMASK (versions that end: bases are raised as far as is
 * wanted), LMASK and LTICK (lives that wrap), QUOTA (cells that grants may have), SHUT (allowance).
 * Mutations: M_xxx.
 * Ghosts: live/last/where/gdl/open/krl/krv per key, gl/gh per cell, pool, lnk; with RECORD slp/mrk/rlive/rtk.
 */
#ifndef SEQ
#define SEQ 0
#endif
#if SEQ==0            /* one array, never replaced */
#define NARR 1
#define MB 1
#define SZ(a) 1
#elif SEQ==1          /* 1 -> 2 */
#define NARR 2
#define MB 2
#define SZ(a) ((a)+1)
#elif SEQ==2          /* 2 -> 1 (shrink) */
#define NARR 2
#define MB 2
#define SZ(a) (2-(a))
#elif SEQ==3          /* 1 -> 1 -> .. (rebase), NARR arrays */
#ifndef NARR
#define NARR 4
#endif
#define MB 1
#define SZ(a) 1
#elif SEQ==4          /* 1 -> 2 -> 4 */
#define NARR 3
#define MB 4
#define SZ(a) (1<<(a))
#elif SEQ==5          /* 1 -> 2 -> 1 */
#define NARR 3
#define MB 2
#define SZ(a) (1+((a)&1))
#elif SEQ==6          /* 2 -> 1 -> 2 */
#define NARR 3
#define MB 2
#define SZ(a) (2-((a)&1))
#elif SEQ==8          /* 2 -> 2 (rebase of two buckets) */
#define NARR 2
#define MB 2
#define SZ(a) 2
#elif SEQ==7          /* two buckets, never replaced */
#define NARR 1
#define MB 2
#define SZ(a) 2
#endif
#ifndef NK
#define NK 2
#endif
#ifndef NN
#define NN 3
#endif
#ifndef MAXT
#define MAXT 2
#endif
#define NIL 15

#define DEAD   0
#define HELD   1
#define FROZEN 2
#define KEXP   3      /* KILLED, reason expired  */
#define KREL   4      /* KILLED, reason released */
#define KREV   5      /* KILLED, reason revoked  */
#define KTAK   6      /* KILLED: it goes on in the key's record */
#define MARK   7
#define FMARK  8      /* a frozen mark */
#define LIFE(s) ((s)>>7)
#define TAG(s)  (((s)>>3)&15)
#define DL(s)   ((s)&7)
#define ST(v,t,d) (((v)<<7)|((t)<<3)|(d))
#define TOTAG(s,t) ST(LIFE(s),t,DL(s))
#define KILLED(s) (TAG(s)>=KEXP && TAG(s)<=KTAK)
#define GONE(s) (TAG(s)==DEAD || KILLED(s))
#define THAWED(t) ((t)==FMARK -> MARK : HELD)
/* LMASK: lives wrap.  LTICK: the clock moves on between grants, so that no two have one deadline */
#ifndef LMASK
#define LMASK 255
#endif
#define NEXTLIFE(s) ((LIFE(s)+1)&LMASK)

#define NORMAL 0
#define FRZ    1
#define UNINIT 2
#define DONE   3
#define RBD    4      /* REBUILD */
#define CTR(h) ((h)>>7)
#define IDX(h) (((h)>>3)&15)
#define FLG(h) ((h)&7)
/* VMASK: versions are so wide.  VLIM: a grant's, less what is kept for copies and rebuilds */
#ifdef VMASK
#define HW(c,i,f) ((((c)&VMASK)<<7)|((i)<<3)|(f))
#else
#define HW(c,i,f) (((c)<<7)|((i)<<3)|(f))
#endif
#if defined(VMASK) && !defined(M_WRAP)
#define VFITS(c) assert((c)<=VMASK)
#else
#define VFITS(c) skip
#endif
#define TOFLG(h,f) HW(CTR(h),IDX(h),f)
#define HI(a,b) ((a)*MB+(b))
#define HB HI(c,b)
#define MAX(a,b) ((a)>(b) -> (a) : (b))
/* a token of array a is BASE(a) + version; without RELWORD versions are tokens.  CHVER: the version of
 * a bucket of array c copied from one of version v: its token is above every token granted there */
#ifdef RELWORD
#ifndef BSTEP
#define BSTEP 1
#endif
#ifdef DYNBASE
#ifndef VLIM
#define VLIM 127
#endif
#define BASE(a) bas[a]
#else
#define BASE(a) (BSTEP*(a))
#endif
#define RGO rw
#ifdef M_RWANYVER
#define RWGO rw2
#else
#define RWGO rwcas
#endif
#else
#define BASE(a) 0
#define RGO hop
#endif
#define CHVER(c,v) MAX(BASE((c)-1)+(v)+1-BASE(c),0)
/* parents of bucket b of array c: (b+i*SZ(c))%SZ(c-1), i<NPAR */
#define NPAR(c) (SZ((c)-1)>SZ(c) -> 2 : 1)

#ifdef EXP
#define HDL 1     /* deadline of the leases held at the start */
/* ERA: the deadline is the cell's era plus an offset of one bit; an era is one tick long */
#ifdef ERA
#define DLN(n,s) (er[n]+DL(s))
#define OFS(n,d) ((d)-er[n])
#define SETERA(n,d) er[n]=d
#else
#define DLN(n,s) DL(s)
#define OFS(n,d) (d)
#define SETERA(n,d) skip
#endif
#define EXPD(n,s) (DLN(n,s)<=clk)
#define PAST(n,s) (DLN(n,s)<=nw)     /* at the start of the operation */
#define GLIVE(k) (live[k] && clk<gdl[k])
#define NEWDL (clk+1)
#else
#define HDL 0
#define DLN(n,s) DL(s)
#define OFS(n,d) (d)
#define SETERA(n,d) skip
#define EXPD(n,s) (false)
#define PAST(n,s) (false)
#define GLIVE(k) (live[k])
#ifdef LTICK
#define NEWDL tick
#else
#define NEWDL 0
#endif
#endif

short hd[NARR*MB];
short st[NN];
byte  key[NN];
byte  tok[NN];
byte  nxt[NN];
#ifdef ERA
byte  er[NN];      /* era; written only while the cell is private */
#endif
bool  par[NARR];
byte  cur;
byte  clk;
#ifdef LTICK
byte  tick;
#endif
#ifdef DYNBASE
byte  bas[NARR];
byte  need;        /* the next array's base is at least this */
#endif
/* ghosts */
byte  pool;
byte  lnk;
byte  gl[NN];      /* life last linked                   */
byte  gh[NN];      /* bucket (index) it was linked in    */
bool  live[NK];
byte  last[NK];
byte  where[NK];
byte  gdl[NK];     /* latest deadline promised           */
short open[NK];    /* bit t: token t granted, its end not yet reported */
short krl[NK];     /* bit t: killed with reason released */
short krv[NK];     /* bit t: killed with reason revoked  */
#ifdef RECORD
bool  ntf[NK];     /* the record was told of an end      */
bool  slp[NK];     /* somebody waits, and sleeps         */
bool  mrk[NK];     /* the mark is linked                 */
bool  rlive[NK];   /* the record holds a lease ..        */
byte  rtk[NK];     /* .. of this token                   */
#endif
#ifdef SHUT
byte  alw;         /* the greatest token that may be granted */
byte  lim[NARR];   /* the last version that a grant may make in this array */
bool  isshut, opened;
#endif
#ifdef SHARED
byte  rp;
#define RPB rp++
#define RPE rp--
#define RPON (rp>0)
#else
#define RPB skip
#define RPE skip
#define RPON false
#endif

#define BIT(n) (1<<(n))
#define PUT(n) assert((pool & BIT(n))==0); assert((lnk & BIT(n))==0); assert(TAG(st[n])==DEAD); pool = pool | BIT(n)
#define POP1(x,n) (pool & BIT(n)) != 0 -> x=n; pool = pool & (255-BIT(n))
#ifdef LOWPOP
#define POPANY(x) :: pool!=0 -> x=0; do :: (pool & BIT(x))!=0 -> break :: else -> x++ od; pool = pool & (255-BIT(x))
#elif NN==2
#define POPANY(x) :: POP1(x,0) :: POP1(x,1)
#elif NN==3
#define POPANY(x) :: POP1(x,0) :: POP1(x,1) :: POP1(x,2)
#elif NN==4
#define POPANY(x) :: POP1(x,0) :: POP1(x,1) :: POP1(x,2) :: POP1(x,3)
#elif NN==5
#define POPANY(x) :: POP1(x,0) :: POP1(x,1) :: POP1(x,2) :: POP1(x,3) :: POP1(x,4)
#elif NN==6
#define POPANY(x) :: POP1(x,0) :: POP1(x,1) :: POP1(x,2) :: POP1(x,3) :: POP1(x,4) :: POP1(x,5)
#endif
#define LINK(n,a) assert((lnk & BIT(n))==0); assert((pool & BIT(n))==0); lnk = lnk | BIT(n); gl[n]=LIFE(st[n]); gh[n]=a
#define UNLINK(n) assert((lnk & BIT(n))!=0); lnk = lnk & (255-BIT(n))
#define UNLINKS(x,to) do :: x!=to -> UNLINK(x); x=nxt[x] :: x==to -> break od
/* a private cell goes back to the free list, DEAD: the wheel may look at it.  Its life stays, and it may be the
 * FROZEN original of a lease that lives on as a copy: so no handle takes DEAD for the end of its lease */
#ifdef M_GIVEHELD
#define GIVE(n) PUT(n)
#else
#define GIVE(n) st[n]=TOTAG(st[n],DEAD); PUT(n)
#endif
#ifdef M_GIVECOPY
#define GIVEC(n) PUT(n)
#else
#define GIVEC(n) st[n]=TOTAG(st[n],DEAD); PUT(n)
#endif

#ifdef RECORD
#define A_ADMITTED assert(!rlive[k] && (mode==HED || !mrk[k]))
#define A_RECORDED if :: mk -> skip :: else -> assert(!(rlive[k] && rtk[k]==tk)) fi
#else
#define A_ADMITTED skip
#define A_RECORDED skip
#endif
/* blocks: tokens up to L0; then, once the table was shut and is open again, from F1 to L1 */
#ifdef SHUT
#define A_ALLOWED assert(!isshut); assert((tk<=L0 && !opened && c<1) || (tk>=F1 && tk<=L1 && opened))
#else
#define A_ALLOWED skip
#endif
#ifdef RECORD
#define NOTG && !ntg
#define ADMITTED GRANTS && !(mode==ACQ && mk)
#else
#define NOTG
#define ADMITTED GRANTS
#endif
#ifdef M_SHUTUNMOVED
#define MOVES && !(c==1 && !isshut)
#else
#define MOVES
#endif
#ifdef RELWORD
#define HSW hs
#else
#define HSW st[hn]
#endif
#define PB(n) ((pool>>(n))&1)
#define OUT (NN-PB(0)-PB(1)-PB(2)-PB(3)-PB(4)-PB(5)-PB(6)-PB(7))   /* cells that are not free */
#define ISSHUT(a) ((a)==1)
#ifdef ERA
#define RNGO rnera
#else
#define RNGO rncas
#endif
#define A_GRANT(n,d) A_ADMITTED; A_ALLOWED; assert(!live[k]); assert(tk>last[k]); live[k]=true; last[k]=tk; where[k]=n; gdl[k]=d; open[k]=open[k]|BIT(tk)
#define A_LOST       assert(!(GLIVE(k) && last[k]==tk))
/* the end of token t of key q is reported */
#define REPX(q,t) assert((open[q]&BIT(t))!=0); open[q]=open[q]&(32767-BIT(t)); \
   krl[q]=krl[q]&(32767-BIT(t)); krv[q]=krv[q]&(32767-BIT(t))
/* .. with the reason z of the KILLED word */
#define REP(q,t,z) assert(((z)==KREL) == ((krl[q]&BIT(t))!=0)); assert(((z)==KREV) == ((krv[q]&BIT(t))!=0)); REPX(q,t)

#define OH  1    /* release by handle */
#define OR  2    /* renew by handle   */
#define OA  4    /* abandon           */
#define OS  8    /* afterwards release once more with the stale handle */
#define OQ  16   /* role: the record of key k, and those who wait for it */
#define OM  32   /* role: grower      */
#define OL  64   /* role: wheel       */
#define OV  128  /* role: revoke key k (nacq times) */
#define OB  256  /* role: rebuild the bucket of key k (nacq times) */
#define OT  512  /* role: shut the table and open it again */
#define OX  1024 /* OQ: who waits may leave */
#define OI  2048 /* OQ: the record holds a lease itself, with a token that is issued */
#define OK  4096 /* OQ: the record takes the table's lease over .. */
#define OG  8192 /* .. or the one that it has granted to the head of the queue */
#define WLX C0; s=0; h=0; n=NIL; kn=NIL; ka=0; gk=0; gt=0; b=0; kf=0; kz=0; goto endwl
#define ACQ 0
#define REL 1
#define REN 2
#define REV 3
#define MRK 4    /* put the record's mark */
#define HED 5    /* grant to the head of the queue */
#define UNM 6    /* take the mark away */
#define ISS 7    /* issue a token, with the mark */
#define TAK 8    /* take the table's lease over */
#define GRANTS (mode==ACQ || mode==HED)
#define NEEDS (mode==ACQ || mode==HED || mode==MRK || mode==ISS)
#ifndef NREN
#define NREN 1
#endif
#ifdef BOUND
#define C0 cnt=0
#define CNT(chk,on) cnt++; if :: cnt==NN -> cnt=0; goto chk :: else -> goto on fi
#else
#define C0 skip
#define CNT(chk,on) goto on
#endif

#ifdef RVOLD    /* the revoker caches array 0 at first, for its last revocation the newest */
#define RVC0 ((opts & OV)!=0)
#define RVCL if :: nacq==0 -> c=cur :: else fi
#else
#define RVC0 false
#define RVCL skip
#endif

/* n0,t0: a lease held at the start (cell, token; life 1), or NIL,0.  id: bit of this worker */
/* w0: its state as its holder last saw it; 0: as it is at the start */
proctype Worker(byte id; byte k; byte nacq; int opts; byte n0; byte t0; short w0)
{
  short s, h, f, f0, f1;
  byte c, b, n, pf, p, m, fc, hn, hl, tk, mode, nren, si, di, i, kn, ka, kf, kz, gk, gt, nw;
  bool pref, sl, stl, fr, rb;
#ifdef ERA
  byte e0;
#endif
#ifdef DYNBASE
  byte wn;     /* the token that is wanted of the next array */
  bool gro;    /* moves everything, for that */
#endif
#ifdef RECORD
  byte q;      /* the key whose record is to hear of an end */
  bool nt, ntg, mk;
#endif
#ifdef BOUND
  byte cnt;
#endif
#ifdef RELWORD
  short hs;    /* the state the holder last saw */
  bool lv;     /* ghost: its lease was live when the short release looked at the state */
#ifdef M_RWGRANTVER
  byte gv;     /* the version of the grant, in whatever array that was */
#endif
#endif

  atomic {
    p=NIL; hn=NIL; n=NIL; pf=NIL; fc=NIL; m=NIL; kn=NIL; c=((n0!=NIL && w0==0) || RVC0 -> 0 : cur);   /* a holder's cache is as old as its grant */
    if
    :: n0!=NIL -> hn=n0; hl=(w0==0 -> 1 : LIFE(w0)); tk=t0; nren=NREN;
#ifdef RELWORD
       hs=(w0==0 -> ST(1,HELD,HDL) : w0);
#ifdef M_RWGRANTVER
       gv=t0;
#endif
#endif
       goto choose
    :: else -> goto next
    fi
  };
next:
  atomic {
    C0; s=0; h=0; f=0; f0=0; f1=0; n=NIL; pf=NIL; fc=NIL; m=NIL; hn=NIL; hl=0; tk=0; mode=ACQ; nren=NREN;
    kn=NIL; ka=0; kf=0; kz=0; gk=0; gt=0; fr=false; nw=0; i=0;
    si=0; di=0; b=0; pref=false; sl=false; stl=false;
#ifdef RECORD
    q=0; nt=false; ntg=false; mk=false;
#endif
#ifdef DYNBASE
    wn=0;
#endif
#ifdef RELWORD
    hs=0; lv=false;
#ifdef M_RWGRANTVER
    gv=0;
#endif
#endif
    if
#if NARR>1
    :: (opts & OM)!=0 -> goto hl0
#endif
#ifdef EXP
    :: (opts & OL)!=0 -> WLX
#endif
    :: (opts & OV)!=0 && nacq>0 -> nacq--; RVCL; mode=REV; goto lh
#ifdef SHED
    :: (opts & OB)!=0 && nacq>0 -> nacq--; c=cur; goto shd
#endif
#ifdef RECORD
    :: (opts & OQ)!=0 && nacq>0 -> nacq--; mode=((opts & OI)!=0 -> ISS : MRK); goto lh
#endif
#ifdef SHUT
    :: (opts & OT)!=0 && nacq>0 -> nacq--; goto shut
#endif
    :: (opts & (OM|OL))==0 && nacq==0 -> goto fin
    :: (opts & (OM|OL|OV|OB|OQ|OT))==0 && nacq>0 -> nacq--; goto lh
    fi
  };
choose: /* granted: what to do with the lease (local) */
  atomic {
    C0; s=0; h=0; f=0; n=NIL; pf=NIL; pref=false; sl=false; b=0; nw=0;
    kn=NIL; ka=0; kf=0; kz=0; gk=0; gt=0;
#ifdef MOVE
    if
    :: c!=cur -> c=cur
    :: c>0 -> c=c-1
#if defined(RELWORD) && NARR>2
    :: c>1 -> c=c-2
#endif
    :: skip
    fi;
#endif
    if
    :: (opts & (OH|OQ))!=0 -> mode=REL; nw=clk; RPB; goto RGO
    :: (opts & OR)!=0 && nren>0 -> nren--; mode=REN; goto rn
    :: (opts & OA)!=0  -> goto next
    :: (opts & (OH|OA))==0 && nren==0 -> goto next
    fi
  };

#ifdef EXP
/* ---------- the wheel (change C): any cell at any time ---------- */
endwl:
#ifdef NPW
progresswl:
#endif
  atomic {
#ifdef WFRZ
#define WOK(x) ((TAG(st[x])==HELD && EXPD(x,st[x])) || TAG(st[x])==FROZEN)
#else
#define WOK(x) (TAG(st[x])==HELD && EXPD(x,st[x]))
#endif
    if
    :: WOK(0) -> kn=0
    :: WOK(1) -> kn=1
#if NN>2
    :: WOK(2) -> kn=2
#endif
#if NN>3
    :: WOK(3) -> kn=3
#endif
#if NN>4
    :: WOK(4) -> kn=4
#endif
#if NN>5
    :: WOK(5) -> kn=5
#endif
#if NN>6
    :: WOK(6) -> kn=6
#endif
#if NN>7
    :: WOK(7) -> kn=7
#endif
    fi;
    s=st[kn]; goto wl1
  };
wl1: atomic { gk=key[kn]; b=gk%SZ(c); ka=HB; goto wl2 };
wl2:
  atomic {
    h=hd[ka]; n=NIL;
#ifdef M_WNOLINK
    goto wl5;
#endif
    if
    :: FLG(h)==NORMAL && TAG(s)==HELD -> n=IDX(h); goto wl3
    :: FLG(h)==NORMAL && TAG(s)!=HELD -> WLX
#if NARR>1
    :: FLG(h)==UNINIT -> goto mig
#endif
    :: FLG(h)==FRZ || FLG(h)==DONE -> goto wlr
#ifdef SHED
    :: FLG(h)==RBD -> goto reb
#endif
    fi
  };
wlr: atomic { assert(cur!=c); c=cur; WLX };
wl3: /* find this very cell */
  atomic {
    if
    :: n==NIL -> WLX    /* not found: later */
    :: n==kn -> goto wl4
    :: n!=NIL && n!=kn -> n=nxt[n]; CNT(wl3c,wl3)
    fi
  };
#ifdef BOUND
wl3c: atomic { if :: hd[ka]!=h -> WLX :: else -> goto wl3 fi };
#endif
wl4:
  atomic {
#ifndef M_WNORELOAD
    if :: hd[ka]!=h -> goto wl2 :: else fi;
#endif
    goto wl5
  };
wl5: atomic { C0; gt=tok[kn]; n=NIL; h=0; kf=3; kz=KEXP; goto kl };
#endif

/* ---------- renew by handle (3, D, F): whatever is not this very lease, held and live, goes by key ---------- */
rn:
  atomic {
    s=st[hn]; nw=clk;
    if
#ifndef M_HNOLIFE
    :: LIFE(s)!=hl ->
#ifdef M_LIFEEXP
       A_LOST; goto next
#else
       s=0; nw=0; goto lh
#endif
    :: LIFE(s)==hl -> goto rn1
#else
    :: true -> goto rn1
#endif
    fi
  };
rn1:
  atomic {
    if
#ifndef M_HNOKEY
    :: key[hn]!=k || tok[hn]!=tk -> s=0; nw=0; goto lh
#endif
    :: else ->
    if
#ifdef M_DEADEXP
    :: GONE(s) -> A_LOST; goto next
#endif
#ifdef M_FROZENEXP
    :: TAG(s)==FROZEN -> A_LOST; goto next
#endif
    :: TAG(s)!=HELD -> s=0; nw=0; goto lh
#ifdef EXP
    :: TAG(s)==HELD && DLN(hn,s)<=nw ->
#ifdef M_RNKILL
       b=k%SZ(c); kn=hn; ka=HB; kf=2; kz=KEXP; gk=k; gt=tk; goto kl
#else
       s=0; nw=0; goto lh
#endif
    :: TAG(s)==HELD && DLN(hn,s)>nw -> goto RNGO
#else
    :: TAG(s)==HELD -> goto RNGO
#endif
    fi
    fi
  };
#ifdef ERA
rnera: /* the deadline that is wanted, in the era that was found */
  atomic {
    if
    :: nw=nw+1
    :: nw<MAXT -> nw=nw+2
    fi;
    nw=MAX(nw,DLN(hn,s)); e0=er[hn];
    if
#ifndef M_ERALEFT
    :: nw-e0>1 -> nw=0; goto eshd    /* the lease has outlived it: copies take a later one */
#endif
    :: else -> goto rncas
    fi
  };
eshd:
  atomic {
    s=0; b=k%SZ(c); h=hd[HB];
    if
    :: FLG(h)==NORMAL -> goto eshc
    :: else -> h=0; goto lh
    fi
  };
eshc:
  atomic {
    if
    :: hd[HB]==h -> hd[HB]=TOFLG(h,RBD); goto reb
    :: else -> h=0; goto lh
    fi
  };
#endif
rncas:
  atomic {
#ifdef ERA
    assert(nw>=e0);
#endif
    if
    :: st[hn]==s ->
#if defined(EXP) && !defined(ERA)
       if
       :: nw=nw+1
       :: nw<MAXT -> nw=nw+2
       fi;
#ifndef M_SHORTEN
       nw=MAX(nw,DL(s));
#endif
#endif
       assert(last[k]==tk && where[k]==hn && (live[k] || RPON));
       
#ifdef ERA
       st[hn]=ST(LIFE(s),HELD,(nw-e0)&1);
#else
       st[hn]=ST(LIFE(s),HELD,nw);
#endif
       gdl[k]=MAX(gdl[k],nw);
#ifdef RELWORD
       hs=st[hn];
#endif
       goto choose
    :: else -> goto rn
    fi
  };

#ifdef RELWORD
/* ---------- release by the word of the grant (G); whatever does not fit goes to `hop` ---------- */
rw: /* the version of the token in the cached array; the state: exactly the one last seen */
  atomic {
    b=k%SZ(c);
#ifdef M_RWGRANTVER
    h=gv;
#else
    h=tk; h=h-BASE(c);
#endif
    if
    :: h<0 -> h=0; goto hop
    :: h>=0 -> s=st[hn]; lv=(live[k] && last[k]==tk && where[k]==hn);
       if
#ifdef M_RWNOSTATE
       :: true -> goto rw1
#else
       :: s==hs -> goto rw1
       :: s!=hs -> s=0; h=0; lv=false; goto hop
#endif
       fi
    fi
  };
rw1: /* nothing behind it */
  atomic {
    if
#ifdef M_RWNONEXT
    :: true -> n=NIL; goto RWGO
#elif defined(M_RWNOBEHIND)
    :: true -> n=nxt[hn]; goto RWGO
#else
    :: nxt[hn]==NIL -> n=NIL; goto RWGO
    :: nxt[hn]!=NIL -> n=nxt[hn]; kn=n; goto rwb
#endif
    fi
  };
#if !defined(M_RWNONEXT) && !defined(M_RWNOBEHIND)
rwb: /* or leases only */
  atomic {
    if
    :: TAG(st[kn])==HELD || TAG(st[kn])==FROZEN -> goto rwb1
    :: else -> n=NIL; kn=NIL; s=0; h=0; lv=false; goto hop
    fi
  };
rwb1:
  atomic {
    kn=nxt[kn];
    if :: kn==NIL -> C0; goto RWGO :: else -> CNT(rwbc,rwb) fi
  };
#ifdef BOUND
rwbc: atomic { n=NIL; kn=NIL; s=0; h=0; lv=false; goto hop };   /* they are few */
#endif
#endif
#ifdef M_RWANYVER
rw2: /* whatever word has the cell first */
  atomic {
    h=hd[HB];
    if
    :: FLG(h)==NORMAL && IDX(h)==hn -> h=CTR(h); goto rwcas
    :: else -> n=NIL; s=0; h=0; lv=false; goto hop
    fi
  };
#endif
rwcas: /* the one CAS: unlink = release.  The bucket was not loaded, key and token were not compared */
  atomic {
    if
    :: hd[HB]==HW(h,hn,NORMAL) ->
       assert((lnk & BIT(hn))!=0 && gh[hn]==HB && gl[hn]==hl);   /* linked here, in the life of the handle */
       assert(LIFE(st[hn])==gl[hn] && key[hn]==k && tok[hn]==tk);
       assert(lv);                                               /* and live when the state was loaded */
       if
       :: TAG(st[hn])==HELD -> assert(live[k] && last[k]==tk && where[k]==hn); live[k]=false
       :: else -> assert(KILLED(st[hn]) && !(live[k] && last[k]==tk))   /* killed since; not reported yet */
       fi;
       hd[HB]=HW(h,n,NORMAL); UNLINK(hn); n=NIL; h=0; lv=false; goto rwst
    :: else -> n=NIL; s=0; h=0; lv=false; goto hop
    fi
  };
rwst: /* report "released"; plain store of DEAD over the state it had seen, then free */
  atomic { REPX(k,tk); st[hn]=TOTAG(s,DEAD); PUT(hn); s=0; goto relend };
#endif

/* ---------- release by handle (2, D) ---------- */
hop:
#ifdef M_RSF
  atomic { s=st[hn]; goto hop1 };
hop1:
  atomic { b=k%SZ(c); h=hd[HB]; goto hop3 };
#else
  atomic { b=k%SZ(c); h=hd[HB]; goto hop2 };
#endif
hop2:
  atomic { s=st[hn]; goto hop3;
hop3:
    if
#ifndef M_HNOLIFE
    :: LIFE(s)!=hl ->
#ifdef M_LIFEEXP
       A_LOST; goto relend
#else
       s=0; h=0; goto lh
#endif
    :: LIFE(s)==hl -> goto hop4
#else
    :: true -> goto hop4
#endif
    fi
  };
hop4:
  atomic {
    if
#ifndef M_HNOKEY
    :: key[hn]!=k || tok[hn]!=tk -> s=0; h=0; goto lh
#endif
    :: else ->
    if
#ifdef M_DEADEXP
    :: GONE(s) -> A_LOST; goto relend
#endif
#ifdef M_FROZENEXP
    :: TAG(s)==FROZEN -> A_LOST; goto relend
#endif
    :: TAG(s)!=HELD || PAST(hn,s) -> s=0; h=0; goto lh
#ifdef M_HANYFLAG
    :: TAG(s)==HELD && !PAST(hn,s) && IDX(h)!=hn -> goto hcas
    :: TAG(s)==HELD && !PAST(hn,s) && IDX(h)==hn -> goto hk0
#else
    :: TAG(s)==HELD && !PAST(hn,s) && FLG(h)!=NORMAL -> s=0; h=0; goto lh
    :: TAG(s)==HELD && !PAST(hn,s) && FLG(h)==NORMAL && IDX(h)!=hn -> goto hcas
    :: TAG(s)==HELD && !PAST(hn,s) && FLG(h)==NORMAL && IDX(h)==hn -> goto hk0
#endif
    fi
    fi
  };
hcas: /* not first: kill it, reason released (E) */
  atomic {
#ifdef M_RELPLAIN
    if
    :: st[hn]==s -> if :: live[k] && last[k]==tk && where[k]==hn -> live[k]=false :: else fi;
       st[hn]=TOTAG(s,DEAD); REPX(k,tk); goto relend
    :: else -> goto hop
    fi
#else
    kn=hn; ka=HB; kf=4; kz=KREL; gk=k; gt=tk; h=0; goto kl
#endif
  };
hk0: /* first: keep = first cell after it that is not gone */
  atomic { C0; n=nxt[hn]; goto hk };
hk:
  atomic {
    if
    :: n==NIL -> goto rcas
    :: n!=NIL ->
       if
       :: GONE(st[n]) -> goto hkn
       :: else -> goto rcas
       fi
    fi
  };
hkn: atomic { n=nxt[n]; CNT(hkc,hk) };
#ifdef BOUND
hkc: atomic { if :: hd[HB]!=h -> n=NIL; goto hop :: else -> goto hk fi };
#endif
rcas: /* unlink = release */
  atomic {
    if
    :: hd[HB]==h ->
       assert(LIFE(st[hn])==gl[hn] && key[hn]==k && tok[hn]==tk);
       if
       :: TAG(st[hn])==HELD -> assert(live[k] && last[k]==tk && where[k]==hn); live[k]=false
       :: else
       fi;
#if defined(RECORD) && !defined(M_RELNONOTE)
       nt=(n!=NIL);
#endif
       hd[HB]=HW(CTR(h),n,NORMAL); pf=n; n=hn; UNLINKS(n,pf); h=0; n=NIL; goto rre
    :: else -> n=NIL; goto hop
    fi
  };
rre: /* report "released" whatever the state says by now; DEAD over it (a swap), then free */
  atomic {
    REPX(k,tk);
#ifdef RECORD   /* what the swap replaces: the record may have the lease since before */
#ifndef M_TAKENUNSEEN
    if :: TAG(st[hn])==KTAK -> nt=false :: else -> assert(!(rlive[k] && rtk[k]==tk)) fi;
#else
    assert(!(rlive[k] && rtk[k]==tk));
#endif
#endif
    st[hn]=ST(hl,DEAD,DL(s)); n=nxt[hn]; PUT(hn); s=0; goto skp };
relend:
  atomic {
    s=0; h=0; n=NIL; RPE;
    if
    :: (opts & OS)!=0 && !stl -> stl=true; mode=REL; nw=clk; RPB; goto RGO
    :: (opts & OS)==0 || stl -> goto next
    fi
  };

/* ---------- give back the unlinked cells n .. pf (exclusive): finish the KILLED ones (6) ---------- */
skp:
  atomic {
    do
    :: n==pf -> break
#ifdef M_SNOREP
    :: n!=pf && KILLED(st[n]) -> st[n]=TOTAG(st[n],DEAD)
#else
    :: n!=pf && KILLED(st[n]) -> goto skc
#endif
    :: n!=pf && !KILLED(st[n]) ->
       st[n]=TOTAG(st[n],DEAD);    /* of a chain that was copied: its originals are FROZEN */
       PUT(n); n=nxt[n]
    od;
    n=NIL; pf=NIL;
    if
#if NARR>1
    :: fr && !rb -> fr=false; goto tnx
#endif
#ifdef SHED
    :: fr && rb -> fr=false; goto ret
#endif
    :: !fr && kf!=0 -> goto kdone
    :: !fr && kf==0 && mode==ACQ -> goto choose
    :: !fr && kf==0 && mode==REL ->
#ifdef RECORD
       if :: nt -> nt=false; q=k; ntg=true; s=0; h=0; goto nm0 :: else fi;
#endif
       goto relend
#ifdef RECORD
    :: !fr && kf==0 && (mode==HED || mode==ISS || mode==UNM) -> goto qend
#endif
    fi
  };
skc:
  atomic {
    if
    :: KILLED(st[n]) ->
#ifdef M_REASON
       REP(key[n],tok[n],KEXP);
#else
       REP(key[n],tok[n],TAG(st[n]));
#endif
       st[n]=TOTAG(st[n],DEAD)
    :: else
    fi;
    goto skp
  };

/* ---------- kill cell kn whose state was s (4), in bucket ka, reason kz; gk,gt its key and token ---------- */
kl:
  atomic {
    if
#ifdef M_WNOLIFE
    :: st[kn]==s || (kf==3 && TAG(st[kn])==HELD) -> s=st[kn];
#else
    :: st[kn]==s ->
#endif
       assert(gl[kn]==LIFE(s));              /* only a life that was linked is ever killed */
       assert(key[kn]==gk && tok[kn]==gt);
       assert(kz!=KEXP || !(GLIVE(gk) && where[gk]==kn && last[gk]==gt));
       if :: live[gk] && where[gk]==kn && last[gk]==gt -> live[gk]=false :: else fi;
       if :: kz==KREL && (open[gk]&BIT(gt))!=0 -> krl[gk]=krl[gk]|BIT(gt)
          :: kz==KREV && (open[gk]&BIT(gt))!=0 -> krv[gk]=krv[gk]|BIT(gt)
          :: else fi;
       s=TOTAG(s,kz); st[kn]=s;
#ifdef RECORD
       if
       :: kz==KTAK -> rlive[gk]=true; rtk[gk]=gt
       :: else ->
#ifndef M_KILLNONOTE
          nt=true
#endif
       fi;
#endif
#ifdef M_NOREACH
       goto ke
#else
       goto kc
#endif
    :: else ->
       if
       :: kf==4 -> kf=0; kz=0; kn=NIL; ka=0; gk=0; gt=0; goto hop
       :: kf>=5 -> kf=0; kz=0; kn=NIL; ka=0; gk=0; gt=0; s=0; goto lh
       :: else -> goto kdone
       fi
    fi
  };
/* ---------- finish a kill (5) ---------- */
kc:
  atomic { C0; n=NIL; h=hd[ka]; goto kc2 };
kc2:
  atomic {
    assert(FLG(h)!=UNINIT);
    if
    :: st[kn]!=s -> goto kdone
    :: st[kn]==s ->
       if
       :: FLG(h)==DONE -> goto kdone
#ifndef M_NOKUNL
       :: FLG(h)==NORMAL && IDX(h)==kn -> goto ku0
       :: (FLG(h)==NORMAL && IDX(h)!=kn) || FLG(h)==FRZ || FLG(h)==RBD -> n=IDX(h); goto kw
#else
       :: FLG(h)==NORMAL || FLG(h)==FRZ || FLG(h)==RBD -> n=IDX(h); goto kw
#endif
       fi
    fi
  };
kw:
  atomic {
    if
    :: n==NIL || n==kn -> goto kchk
    :: n!=NIL && n!=kn -> n=nxt[n]; CNT(kchk0,kw)
    fi
  };
#ifdef BOUND
kchk0: atomic { if :: hd[ka]!=h -> goto kc :: else -> goto kw fi };
#endif
kchk:
  atomic {
    if
    :: hd[ka]!=h -> goto kc
    :: hd[ka]==h ->
       if
       :: n==kn -> goto ke
       :: n!=kn -> goto kdone
       fi
    fi
  };
ke:
  atomic {
    if
    :: st[kn]==s -> st[kn]=TOTAG(s,DEAD); REP(gk,gt,TAG(s))
    :: else
    fi;
    goto kdone
  };
ku0: atomic { C0; n=nxt[kn]; goto ku };
ku:
  atomic {
    if
    :: n==NIL -> goto kucas
    :: n!=NIL ->
       if
       :: GONE(st[n]) -> goto kun
       :: else -> goto kucas
       fi
    fi
  };
kun: atomic { n=nxt[n]; CNT(kuc,ku) };
#ifdef BOUND
kuc: atomic { if :: hd[ka]!=h -> goto kc :: else -> goto ku fi };
#endif
kucas:
  atomic {
    if
    :: hd[ka]==h -> hd[ka]=HW(CTR(h),n,NORMAL);
#ifdef RECORD
       if :: n==NIL -> nt=false :: else fi;    /* a mark would be kept */
#endif
       pf=n; n=kn; UNLINKS(n,pf); n=NIL; h=0; goto kus
    :: else -> goto kc
    fi
  };
kus:
  atomic {
    assert(st[kn]==s); REP(gk,gt,TAG(s));
    st[kn]=TOTAG(s,DEAD); n=nxt[kn]; PUT(kn); goto skp
  };
kdone:
  atomic {
    h=0; n=NIL; pf=NIL; kn=NIL; ka=0; gt=0; kz=0;
#ifdef RECORD
    if :: nt -> nt=false; q=gk; ntg=true; gk=0; s=0; goto nm0 :: else fi;
#endif
    gk=0; goto kd2
  };
kd2:
  atomic {
    if
#ifdef RECORD
    :: kf==1 && (mode==MRK || mode==HED || mode==ISS) -> kf=0; s=0; goto lh
    :: kf==1 && mode==TAK && rlive[k] -> kf=0; s=0; goto qend
    :: kf==1 && mode==TAK && !rlive[k] -> kf=0; s=0; goto lh
#endif
    :: kf==1 && mode==ACQ -> kf=0; s=0; goto lh
    :: kf==1 && mode==REV -> kf=0; s=0; goto lh    /* look again: ends when not found */
    :: kf==2 -> kf=0; goto rn
#ifdef EXP
    :: kf==3 -> WLX
#endif
    :: kf==4 || kf==5 -> kf=0; s=0; goto relend   /* killed by key because its time was over: "expired" */
#ifdef EXP
    :: kf==6 -> kf=0; s=0; goto next
#endif
    fi
  };

#ifdef RECORD
/* ---------- whoever has ended a lease looks for the key's mark (8), and goes to the record ---------- */
nm0:
  atomic {
    C0; b=q%SZ(c); h=hd[HB];
    if
    :: FLG(h)==NORMAL -> n=IDX(h); goto nm1
#if NARR>1
    :: FLG(h)==UNINIT -> goto mig
    :: FLG(h)==FRZ || FLG(h)==DONE -> c=cur; goto nm0
#endif
#ifdef SHED
    :: FLG(h)==RBD -> goto reb
#endif
    fi
  };
nm1:
  atomic {
    if
    :: n==NIL -> goto nm2
    :: n!=NIL && (TAG(st[n])==MARK || TAG(st[n])==FMARK) && key[n]==q -> goto nm2
    :: else -> n=nxt[n]; CNT(nm1c,nm1)
    fi
  };
#ifdef BOUND
nm1c: atomic { if :: hd[HB]!=h -> goto nm0 :: else -> goto nm1 fi };
#endif
nm2:
  atomic {
    if
    :: hd[HB]!=h -> goto nm0
    :: hd[HB]==h -> if :: n!=NIL -> ntf[q]=true :: else fi;
       n=NIL; h=0; ntg=false; q=0;
       if :: kf==0 -> goto relend :: else -> goto kd2 fi
    fi
  };
#endif

/* ---------- acquire, by-key search, revoke ---------- */
again: /* FROZEN or DONE met: the only place where a worker reads `current` (A) */
  atomic { s=0; h=0; n=NIL; pf=NIL; pref=false; sl=false;
#ifndef M_NOREFRESH
    c=cur;
#endif
    goto lh };
lh:
  atomic {
    C0; s=0; n=NIL; pf=NIL; pref=false; sl=false;
#ifdef RECORD
    if :: ntg -> h=0; goto nm0 :: else fi;
    mk=false;
#endif
    if   /* the private cell is taken BEFORE the bucket word is loaded (1) */
    :: NEEDS && p==NIL ->
       if
#ifdef QUOTA   /* grants leave the rest of the cells to copies */
       :: OUT>=QUOTA -> goto next
       :: else ->
          if
          POPANY(p)
          fi
#else
       POPANY(p)
       :: pool==0 -> goto next
#endif
       fi
    :: else
    fi;
    b = k % SZ(c); h = hd[HB];
    if
#if NARR>1
#ifdef M_UNINITEMPTY
    :: FLG(h)==UNINIT -> n=NIL; pf=NIL; goto nx
#else
    :: FLG(h)==UNINIT -> goto mig
#endif
#ifdef M_DONEEMPTY
    :: FLG(h)==DONE -> n=NIL; pf=NIL; goto nx
    :: FLG(h)==FRZ -> goto again
#else
    :: FLG(h)==FRZ || FLG(h)==DONE -> assert(cur!=c); goto again
#endif
#endif
    :: FLG(h)==NORMAL -> n=IDX(h); pf=n; pref=true; goto nx
#ifdef SHED
    :: FLG(h)==RBD -> goto reb
#endif
    fi
  };
nx: /* examine cell n: state FIRST */
  atomic {
    if
#ifdef RECORD
    :: n==NIL && mode==ACQ && mk -> goto mkheld
    :: n==NIL && mode==ISS -> goto isp
#endif
    :: n==NIL && ADMITTED ->
       assert((lnk & BIT(p))==0);
#ifdef VLIM
       if :: CTR(h)+1>VLIM -> wn=BASE(c)+CTR(h)+1; goto vend :: else fi;
#endif
#ifdef SHUT
       if :: CTR(h)+1>lim[c] -> tk=BASE(c)+CTR(h)+1; goto alw1 :: else fi;
#endif
       tk = BASE(c)+CTR(h)+1; assert(tk<15); key[p]=k;
#ifdef FINE
       goto wt1
#else
       tok[p]=tk; nxt[p]=pf; goto ws
#endif
    :: n==NIL && !GRANTS && mode!=ISS -> goto lostchk
    :: n!=NIL ->
       s=st[n];
       if
       :: TAG(s)==FROZEN -> goto again
       :: GONE(s) -> goto ldnext
       :: TAG(s)==HELD -> sl = (GRANTS && GLIVE(k)); goto ldkey
#ifdef RECORD
       :: TAG(s)==FMARK -> goto again
       :: TAG(s)==MARK -> goto ldmk
#endif
       fi
    fi
  };
ldkey:
  atomic {
    if
    :: key[n]!=k -> pref=false; goto ldnext
    :: key[n]==k && (mode==REL || mode==REN) -> goto ldtok
    :: key[n]==k && mode==REV -> kz=KREV; goto kre
    :: key[n]==k && NEEDS && EXPD(n,s) -> kz=KEXP; goto kre
    :: key[n]==k && GRANTS && !EXPD(n,s) -> goto heldchk
#ifdef RECORD
    :: key[n]==k && mode==MRK && !EXPD(n,s) -> goto mkp
    :: key[n]==k && mode==ISS && !EXPD(n,s) -> goto heldchk
    :: key[n]==k && mode==TAK -> kz=(EXPD(n,s) -> KEXP : KTAK); goto kre
    :: key[n]==k && mode==UNM -> pref=false; goto ldnext
#endif
    fi
  };
kre: /* is the cell really linked with this state? then kill it */
  atomic {
#ifndef M_NOKRE
    if :: hd[HB]!=h -> kz=0; goto lh :: else fi;
#endif
    kn=n; ka=HB; kf=1; n=NIL; pf=NIL; pref=false; goto krt
  };
krt: atomic { C0; gk=key[kn]; gt=tok[kn]; goto kl };
heldchk:
  atomic {
    if
#ifdef M_NOHELDCHK
    :: true ->
#else
    :: hd[HB]==h ->
#endif
#ifdef RECORD
       if
       :: mode==HED -> GIVE(p); p=NIL; goto qsl
       :: mode==ISS -> sl=true
       :: else
       fi;
#endif
       assert(sl);
       if :: p!=NIL -> GIVE(p); p=NIL :: else fi;
       goto next
#ifndef M_NOHELDCHK
    :: else -> goto lh
#endif
    fi
  };

#ifdef RECORD
/* ---------- the record of key k (8): what is done under its lock, and its waiters ---------- */
ldmk:
  atomic {
    if
    :: key[n]==k && mode==UNM -> goto um1
    :: key[n]==k && mode!=UNM ->
#ifndef M_BARGE
       mk=true;
#endif
       pref=false; goto ldnext
    :: key[n]!=k -> pref=false; goto ldnext
    fi
  };
mkheld: /* no lease, but a mark: to the record */
  atomic { GIVE(p); p=NIL; goto next };
mkp: /* a lease stands, in a bucket of word h: the mark goes on top of all of it */
  atomic {
#ifdef M_MARKANYWORD
    h=hd[HB]; if :: FLG(h)!=NORMAL -> goto lh :: else fi;
#endif
    key[p]=k; tok[p]=0; nxt[p]=IDX(h); st[p]=ST(NEXTLIFE(st[p]),MARK,0); goto mkc
  };
mkc:
  atomic {
    if
    :: hd[HB]==h -> LINK(p,HB); hd[HB]=HW(CTR(h)+1,p,NORMAL); mrk[k]=true; p=NIL; h=0; goto mkv
    :: else -> goto lh
    fi
  };
mkv: /* it may have been killed, though */
  atomic {
    pref=false;
    if
#ifdef M_MARKNOLOOK
    :: true -> s=0; n=NIL; goto qsl
#else
    :: (TAG(st[n])==HELD || TAG(st[n])==FROZEN) && LIFE(st[n])==LIFE(s) -> s=0; n=NIL;
       if
       :: (opts & OK)!=0 -> mode=TAK; goto lh
       :: else -> goto qsl
       fi
    :: else -> s=0; n=NIL; goto qsv
#endif
    fi
  };
qsl: /* waits */
  atomic { b=0; hn=NIL; hl=0; tk=0; sl=false; mk=false; slp[k]=true; goto endqsl };
endqsl: /* a valid end only while a lease stands (Mon) */
  atomic {
    if
    :: ntf[k] -> ntf[k]=false; slp[k]=false; goto qsv
    :: (opts & OX)!=0 -> slp[k]=false; goto qlv
    fi
  };
qsv: atomic { mode=HED; mk=false; goto lh };
qlv: atomic { mode=UNM; mk=false; goto lh };
qend: /* under the lock: granted, issued, taken over or unmarked */
  atomic {
    s=0; h=0; n=NIL; pf=NIL; b=0;
    if
    :: mode==HED -> run Worker(id,k,0,OH,hn,tk,HSW); hn=NIL; hl=0; tk=0;
#ifdef RELWORD
       hs=0;
#endif
       if
       :: nacq>0 -> nacq--; goto qsl           /* somebody else waits */
       :: nacq==0 && (opts & OG)!=0 -> mode=TAK; mk=false; goto lh
       :: nacq==0 && (opts & OG)==0 -> goto qlv
       fi
    :: mode==ISS || mode==TAK -> goto qhold
    :: mode==UNM -> goto next
    fi
  };
qhold: /* the record's lease is over; so is the record, then */
  atomic {
#ifdef M_MARKSTAYS
    rlive[k]=false; rtk[k]=0; goto next
#else
    rlive[k]=false; rtk[k]=0; goto qlv
#endif
  };
isp: /* a token of the same counter, and the mark, in one CAS (needs p) */
  atomic {
    tk=BASE(c)+CTR(h)+1; key[p]=k; tok[p]=0; nxt[p]=pf; st[p]=ST(NEXTLIFE(st[p]),MARK,0); n=NIL; goto isc
  };
isc:
  atomic {
    if
#ifdef M_ISSUEBESIDE
    :: FLG(hd[HB])==NORMAL && CTR(hd[HB])==CTR(h) || hd[HB]==h ->
#else
    :: hd[HB]==h ->
#endif
       assert(!live[k] && !rlive[k] && tk>last[k]); last[k]=tk; rlive[k]=true; rtk[k]=tk; mrk[k]=true;
       LINK(p,HB);
#ifdef M_ISSUENOVERSION
       hd[HB]=HW(CTR(h),p,NORMAL);
#else
       hd[HB]=HW(CTR(h)+1,p,NORMAL);
#endif
       p=NIL; tk=0;
       n=IDX(h); UNLINKS(n,pf); n=IDX(h); h=0; pref=false; mk=false; b=0; goto skp
    :: else -> tk=0; mk=false; goto lh
    fi
  };
um1: /* the mark was found */
  atomic {
    if :: hd[HB]!=h -> goto lh :: else -> goto um2 fi
  };
um2:
  atomic {
    if
#ifdef M_FROZENMARKGONE
    :: st[n]!=s && TAG(st[n])==FMARK -> mrk[k]=false; goto qend
#endif
    :: st[n]==s -> st[n]=TOTAG(s,DEAD); mrk[k]=false;
       if
       :: IDX(h)==n -> kn=n; n=nxt[kn]; goto um3
       :: else -> goto qend
       fi
    :: else -> goto lh
    fi
  };
um3: /* first: keep what comes after it */
  atomic {
    if
    :: n!=NIL && GONE(st[n]) -> n=nxt[n]; CNT(um3c,um3)
    :: else -> goto um4
    fi
  };
#ifdef BOUND
um3c: atomic { if :: hd[HB]!=h -> kn=NIL; goto qend :: else -> goto um3 fi };
#endif
um4:
  atomic {
    if
    :: hd[HB]==h -> hd[HB]=HW(CTR(h),n,NORMAL); pf=n; n=kn; UNLINKS(n,pf); n=nxt[kn]; PUT(kn); kn=NIL; goto skp
    :: else -> kn=NIL; goto qend
    fi
  };
#endif

ldtok:
  atomic {
    if
    :: tok[n]!=tk -> pref=false; goto ldnext
    :: tok[n]==tk -> goto bkchk
    fi
  };
bkchk: /* by key (7): found; kill it as released, or as expired if it is; or renew it */
  atomic {
#ifndef M_NOBK
    if :: hd[HB]!=h -> goto lh :: else fi;
#endif
    pf=NIL; h=0; pref=false;
    if
    :: mode==REL -> kn=n; ka=HB; kf=5; kz=(EXPD(n,s) -> KEXP : KREL); gk=k; gt=tk; n=NIL; goto kl
#ifdef EXP
    :: mode==REN && EXPD(n,s) -> kn=n; ka=HB; kf=6; kz=KEXP; gk=k; gt=tk; n=NIL; goto kl
#endif
    :: mode==REN && !EXPD(n,s) -> hn=n; hl=LIFE(s); n=NIL; nw=clk;
#ifdef RELWORD
       hs=s;
#endif
       goto RNGO
    fi
  };
lostchk:
  atomic {
    if
    :: hd[HB]==h ->
       if
       :: mode==REV -> goto next
       :: mode==REL -> A_LOST; A_RECORDED; goto relend
       :: mode==REN -> A_LOST; A_RECORDED; goto next
#ifdef RECORD
       :: mode==MRK -> mode=ACQ; goto lh      /* free: as anybody else */
       :: mode==TAK && (opts & OG)==0 -> mode=HED; goto lh      /* it is over */
       :: mode==TAK && (opts & OG)!=0 -> goto qlv
       :: mode==UNM -> assert(false)          /* a mark is lost */
#endif
       fi
    :: else -> goto lh
    fi
  };
ldnext:
  atomic {
    n=nxt[n]; s=0; sl=false;
    if :: pref -> pf=n :: else fi;
    CNT(wchkb,nx)
  };
#ifdef BOUND
wchkb: atomic { if :: hd[HB]!=h -> goto lh :: else -> goto nx fi };
#endif
#ifdef FINE
wt1: atomic { tok[p]=tk; goto wt2 };
wt2: atomic { nxt[p]=pf; goto ws };
#endif
ws: /* the state of the private cell: next life */
  atomic {
    n=NIL; hn=p; s=NEWDL; sl=false;
#ifdef M_NOBUMP
    hl=MAX(LIFE(st[p]),1);
#else
    hl=NEXTLIFE(st[p]);
#endif
#ifdef LTICK
    tick=(tick+1)&7;
#endif
    SETERA(p,s); st[p]=ST(hl,HELD,OFS(p,s));
#ifdef RELWORD
    hs=st[p];
#endif
    goto hcasg
  };
hcasg: /* link: the grant */
  atomic {
    if
    :: hd[HB]==h ->
       A_GRANT(p,s); LINK(p,HB); VFITS(tk-BASE(c)); hd[HB]=HW(tk-BASE(c),p,NORMAL); p=NIL; s=0;
#ifdef M_RWGRANTVER
       gv=tk-BASE(c);
#endif
       n=IDX(h);
#if defined(M_DONEEMPTY) || defined(M_UNINITEMPTY)
       if :: FLG(h)!=NORMAL -> n=pf :: else fi;
#endif
       fc=n; UNLINKS(n,pf); n=fc; fc=NIL; h=0; pref=false; b=0;
#ifdef RECORD
       mk=false;
#endif
       goto skp
    :: else -> tk=0; hl=0; hn=NIL;
#ifdef RELWORD
       hs=0;
#endif
       goto lh
    fi
  };

#ifdef DYNBASE
/* ---------- no version is left for token wn: an array with a higher base ---------- */
vend:
  atomic { pf=NIL; pref=false; h=0; b=0; need=MAX(need,wn-1); goto ve1 };
ve1:
  atomic {
    c=cur;
    if
    :: BASE(c)+VLIM>=wn -> gro=false; wn=0; goto lh
    :: else -> gro=true; goto hl1
    fi
  };
ve2: /* none can be had */
  atomic { gro=false; wn=0; GIVE(p); p=NIL; goto next };
#define GROWS ((opts & (OM|OT))!=0 || gro)
#else
#define GROWS ((opts & (OM|OT))!=0)
#endif
#ifdef SHUT
/* ---------- the limit of array c is met by token tk (allowance) ---------- */
alw1:
  atomic {
    h=0; b=0; pf=NIL; pref=false;
    if
    :: tk>alw || ISSHUT(c) -> tk=0; GIVE(p); p=NIL; goto next
    :: else -> tk=0; goto alw2
    fi
  };
alw2: atomic { s=alw; goto alw3 };
alw3: atomic { lim[c]=MAX(s-BASE(c),0); s=0; goto lh };
/* ---------- shut the table, open it again with another block ---------- */
#ifdef M_SHUTBYALLOWANCE
shut: atomic { alw=0; isshut=true; goto fin };
#else
shut: atomic { alw=0; goto hl0 };
#endif
shut1: /* all have moved to the array that is shut */
  atomic { isshut=true; need=MAX(need,F1-1); goto hpub };
shut2: /* and to the one that is open */
  atomic { opened=true; isshut=false; alw=L1; goto fin };
#endif
#if NARR>1 || defined(SHED)
#if NARR>1
/* ---------- grower ---------- */
hl0:
#ifdef DYNBASE
  atomic { if :: gro -> s=0; h=0; n=NIL; b=0; i=0; goto ve1 :: else -> goto hl00 fi };
hl00:
#endif
  atomic { s=0; h=0; f=0; f0=0; f1=0; n=NIL; fc=NIL; m=NIL; si=0; di=0; b=0; i=0; c=cur; goto hl1 };
hl1:
  atomic {
    if
#ifdef M_PUBEARLY
    :: c+1<NARR -> goto hpub
#endif
#ifdef M_SHUTUNMOVED
    :: par[c] && c==1 && !isshut -> isshut=true; goto hl0
#endif
    :: par[c] MOVES -> goto hb
#ifdef SHUT
    :: !par[c] && c==0 -> goto hpub
    :: !par[c] && c==1 -> goto shut1
    :: !par[c] && c==2 -> goto shut2
#else
    :: !par[c] && c+1<NARR -> goto hpub
#ifdef DYNBASE
    :: !par[c] && c+1==NARR && gro -> goto ve2
    :: !par[c] && c+1==NARR && !gro -> goto fin
#else
    :: !par[c] && c+1==NARR -> goto fin
#endif
#endif
    fi
  };
hpub: /* publish a brand-new array whose parent is c */
  atomic {
    if
    :: cur==c -> cur=c+1;
#ifdef DYNBASE
#ifdef M_BASENOTRAISED
       bas[c+1]=bas[c]+1;
#else
       bas[c+1]=MAX(bas[c]+1,need);
#endif
#endif
#ifdef SHUT   /* as allowed at that time; none if it is shut */
#ifdef M_SHUTLIMIT
       lim[c+1]=VLIM;
#else
       lim[c+1]=(ISSHUT(c+1) -> 0 : MAX(alw-BASE(c+1),0));
#endif
#endif
    :: else
    fi;
    goto hl0
  };
hb:
  atomic {
    if
#ifdef M_PARNONE   /* looks at the first bucket only */
    :: b==1 -> b=0; goto hfin
    :: b<1 -> h=hd[HB];
#else
    :: b==SZ(c) -> b=0; goto hfin
    :: b<SZ(c) -> h=hd[HB];
#endif
       if
       :: FLG(h)==UNINIT -> goto mig
       :: else -> h=0; i=0; goto tt
       fi
    fi
  };
hfin: /* all parents DONE? */
  atomic {
    if
#ifdef M_PARNONE
    :: b==1 -> goto hpar
    :: b<1 ->
#else
    :: b==SZ(c-1) -> goto hpar
    :: b<SZ(c-1) ->
#endif
       if
       :: FLG(hd[HI(c-1,b)])==DONE -> b++; goto hfin
       :: else -> goto hl0
       fi
    fi
  };
hpar: atomic { par[c]=false; goto hl0 };
#endif

#ifdef SHED
/* ---------- rebuild in place (12): the copy of rules 9 and 10, of one bucket into itself ---------- */
shd:
  atomic {
    b=k%SZ(c); h=hd[HB];
    if
    :: FLG(h)==NORMAL -> goto shc
    :: FLG(h)==RBD -> goto reb
    :: else -> h=0; goto next
    fi
  };
shc:
  atomic {
    if
    :: hd[HB]==h -> hd[HB]=TOFLG(h,RBD); goto reb
    :: else -> h=0; goto next
    fi
  };
reb: /* whoever meets it */
  atomic {
    C0; di=HB; si=HB; i=0; f0=0; f1=0; h=0; s=0; n=NIL; pf=NIL; kn=NIL; ka=0; gk=0; f=hd[si];
    if
    :: FLG(f)!=RBD -> goto ret
    :: else -> rb=true; n=IDX(f); goto m3
    fi
  };
#endif

/* ---------- migrate bucket b of array c (9, 10, A, B); its word was UNINIT ---------- */
mig:
  atomic {
    C0; di=HB; i=0; f0=0; f1=0; n=NIL; h=0; s=0; kn=NIL; ka=0; gk=0; rb=false;
    if
    :: !par[c] -> assert(FLG(hd[di])!=UNINIT); goto ret
    :: else -> goto mgf
    fi
  };
mgf: /* freeze parent i */
  atomic {
    si=HI(c-1,(b+i*SZ(c))%SZ(c-1)); f=hd[si];
#ifdef M_ONEFRZ
    if :: i==1 && FLG(f)==NORMAL -> goto mgn :: else fi;
#endif
#ifdef M_PUBEARLY
    if :: FLG(f)==UNINIT -> goto mgc :: else fi;
#else
    assert(FLG(f)!=UNINIT);
#endif
    if
    :: FLG(f)==NORMAL -> goto mgc
#ifdef SHED
#ifdef M_RBDASDONE
    :: FLG(f)==RBD -> n=IDX(f); goto m3
#else
    :: FLG(f)==RBD -> goto mgc
#endif
#endif
    :: FLG(f)==FRZ -> n=IDX(f); goto m3
    :: FLG(f)==DONE -> goto ret
    :: else
    fi
  };
mgc:
  atomic {
    if
    :: hd[si]==f -> f=TOFLG(f,FRZ); hd[si]=f; n=IDX(f); goto m3
    :: else -> goto mgf
    fi
  };
m3: /* freeze the held cells of the chain */
  atomic {
    if
    :: n==NIL -> goto mgn
    :: n!=NIL -> s=st[n];
       if
#ifndef M_NOCELLFRZ
       :: TAG(s)==HELD -> goto m3h
#else
       :: TAG(s)==HELD -> s=0; goto m3n
#endif
#if defined(RECORD) && !defined(M_MARKNOTFROZEN)
       :: TAG(s)==MARK -> goto m3h
#endif
       :: else -> s=0; goto m3n
       fi
    fi
  };
m3h:
  atomic {
#ifndef M_NOFRZCHK
    if :: hd[si]!=f -> goto ret :: else fi;
#endif
    goto m3c
  };
m3c:
  atomic {
    if
    :: st[n]==s -> assert((lnk&BIT(n))!=0 && gh[n]==si && gl[n]==LIFE(s)); st[n]=TOTAG(s,(TAG(s)==MARK -> FMARK : FROZEN)); s=0; goto m3n
    :: else -> goto m3
    fi
  };
m3n: atomic { n=nxt[n]; CNT(m3w,m3) };
#ifdef BOUND
m3w: atomic { if :: hd[si]!=f -> goto ret :: else -> goto m3 fi };
#endif
mgn: /* next parent, or copy (local) */
  atomic {
    C0; s=0;
    if :: i==0 -> f0=f :: else -> f1=f fi;
    i++; fc=NIL;
    if
    :: !rb && i<NPAR(c) -> goto mgf
    :: else -> i=0; f=0; n=IDX(f0); goto m5
    fi
  };
m5: /* private copies of the frozen cells */
  atomic {
    if
    :: n==NIL -> C0; m=NIL; s=0; i++;
       if
#ifndef M_COPYONE
       :: !rb && i<NPAR(c) -> n=IDX(f1); if :: n==NIL -> i=0; goto m6 :: else -> goto m5 fi
#endif
       :: else -> i=0; goto m6
       fi
    :: n!=NIL -> s=st[n];
       if
       :: TAG(s)==FROZEN -> goto m5k
#if defined(M_ONEFRZ) || defined(M_NOCELLFRZ)
       :: TAG(s)==HELD -> goto m5k
#endif
#if defined(RECORD) && !defined(M_MARKNOTCOPIED)
       :: TAG(s)==FMARK -> goto m5k
#endif
#ifdef M_COPYKILLED
       :: KILLED(s) -> goto m5k
#endif
       :: else -> s=0; goto m5n
       fi
    fi
  };
m5k:
  atomic {
    if
    :: (key[n]%SZ(c))!=b -> s=0; goto m5n
    :: else -> goto m5t
    fi
  };
m5t:
  atomic {
    if
    POPANY(m)
    :: pool==0 -> goto nomem
    fi;
    assert((lnk & BIT(m))==0);
    key[m]=key[n]; tok[m]=tok[n]; nxt[m]=fc; fc=m; goto m5w
  };
m5w:
  atomic { f=DLN(n,s); SETERA(m,f); st[m]=ST(NEXTLIFE(st[m]),THAWED(TAG(s)),OFS(m,f)); f=0; s=0; m=NIL; goto m5n };
m5n: atomic { n=nxt[n]; CNT(m5x,m5) };
#ifdef BOUND
m5x: atomic { if :: FLG(hd[di])!=(rb -> RBD : UNINIT) -> goto m6l :: else -> goto m5 fi };
#endif
nomem:
#if defined(QUOTA) || defined(RECORD) || defined(SHED)   /* grants leave enough to copies */
  atomic { assert(false) };
#else
  atomic {
    do
    :: fc!=NIL -> m=nxt[fc]; GIVEC(fc); fc=m
    :: fc==NIL -> break
    od;
    m=NIL; s=0; f=0; f0=0; f1=0; h=0; n=NIL; goto fin   /* (model bound only) */
  };
#endif
m6: /* publish: UNINIT -> version above every parent's */
  atomic {
    if
#ifdef SHED
#ifdef M_RBANY
    :: rb && FLG(hd[di])==RBD ->
#else
    :: rb && hd[di]==f0 ->
#endif
       n=IDX(f0); pf=NIL; UNLINKS(n,pf); VFITS(CTR(f0)+1);
#ifdef M_RBSAMEVER
       hd[di]=HW(CTR(f0),fc,NORMAL);
#else
       hd[di]=HW(CTR(f0)+1,fc,NORMAL);
#endif
       m=fc;
       do
       :: m!=NIL -> LINK(m,di); if :: TAG(st[m])==HELD -> where[key[m]]=m :: else fi; m=nxt[m]
       :: m==NIL -> break
       od;
       n=IDX(f0); fc=NIL; m=NIL; f0=0; f1=0; i=0; fr=true; goto skp
    :: rb && hd[di]!=f0 -> goto m6l
#endif
    :: !rb && FLG(hd[di])==UNINIT ->
       VFITS(CHVER(c,MAX(CTR(f0),CTR(f1))));
#ifdef M_CHILDVER
       hd[di]=HW(1,fc,NORMAL);
#elif defined(M_SAMEVER)
       hd[di]=HW(MAX(CTR(f0),CTR(f1)),fc,NORMAL);
#elif defined(M_ONEVER)
       hd[di]=HW(CHVER(c,CTR(f0)),fc,NORMAL);
#else
       hd[di]=HW(CHVER(c,MAX(CTR(f0),CTR(f1))),fc,NORMAL);
#endif
       m=fc;
       do
       :: m!=NIL -> LINK(m,di); if :: TAG(st[m])==HELD -> where[key[m]]=m :: else fi; m=nxt[m]
       :: m==NIL -> break
       od;
       fc=NIL; m=NIL; f0=0; f1=0; i=0; goto tt
    :: else -> goto m6l
    fi;
m6l:
    do
    :: fc!=NIL -> m=nxt[fc]; GIVEC(fc); fc=m
    :: fc==NIL -> break
    od;
    m=NIL; goto ret
  };
/* ---------- retire the parents of the standing bucket b of array c ---------- */
tt:
  atomic {
    if
    :: c==0 || i==NPAR(c) -> i=0; f=0; si=0; di=0; goto tend
    :: else -> si=HI(c-1,(b+i*SZ(c))%SZ(c-1)); f=hd[si];
       if
       :: FLG(f)==FRZ -> goto tt2
       :: else -> goto tnx
       fi
    fi
  };
tt2: /* growth: does the other child stand? */
  atomic {
#ifndef M_DONEEARLY
    if
    :: SZ(c)>SZ(c-1) && FLG(hd[HI(c,(b+SZ(c-1))%SZ(c))])==UNINIT -> goto tnx
    :: else -> goto tt3
    fi
#else
    goto tt3
#endif
  };
tt3: /* the winner of FROZEN -> DONE frees the old chain */
  atomic {
    if
#ifdef M_DONESTORE
    :: true -> hd[si]=TOFLG(f,DONE);
       n=IDX(f); pf=NIL; UNLINKS(n,pf); n=IDX(f); fr=true; goto skp
#elif defined(M_FREEPUB)
    /* frees at publication, the parent stays FROZEN */
    :: hd[si]==f && IDX(f)!=NIL && (lnk&BIT(IDX(f)))!=0 && gh[IDX(f)]==si ->
       n=IDX(f); pf=NIL; UNLINKS(n,pf); n=IDX(f); fr=true; goto skp
#else
    :: hd[si]==f -> hd[si]=TOFLG(f,DONE);
       n=IDX(f); pf=NIL; UNLINKS(n,pf); n=IDX(f); fr=true; goto skp
#endif
#ifndef M_DONESTORE
    :: else -> goto tnx
#endif
    fi
  };
tnx: atomic { i++; f=0; goto tt };
tend:
  atomic {
    if
#ifdef RECORD
    :: ntg -> goto nm0
#endif
#if NARR>1
    :: GROWS NOTG -> b++; goto hb
#endif
#ifdef EXP
    :: (opts & OL)!=0 NOTG -> WLX
#endif
#ifdef SHED
    :: (opts & OB)!=0 NOTG -> goto next
#endif
    :: else -> goto lh
    fi
  };
ret: /* look at the bucket again */
  atomic {
    C0; s=0; f=0; f0=0; f1=0; h=0; n=NIL; pf=NIL; si=0; di=0; fc=NIL; m=NIL; i=0; rb=false;
    if
#ifdef RECORD
    :: ntg -> goto nm0
#endif
#if NARR>1
    :: GROWS NOTG -> goto hb
#endif
#ifdef SHED
    :: (opts & OB)!=0 NOTG -> goto next
#endif
#ifdef EXP
    :: (opts & OL)!=0 NOTG -> WLX
#endif
    :: else -> goto lh
    fi
  };
#endif

fin:
  atomic { c=0; if :: p!=NIL -> GIVE(p); p=NIL :: else fi }
}

#ifdef EXP
proctype Clock() { do :: atomic { clk<MAXT -> clk++ } :: clk==MAXT -> break od }
#endif

/* at rest: every grant is live or reported once; every live lease is found by key from the newest
 * array; no cell lost; nobody sleeps on an ended lease */
proctype Mon()
{
  byte q, x, a;
  bool fnd;
endm:
  atomic {
    timeout ->
    q=0;
    do
    :: q<NK ->
       assert(open[q] == (live[q] -> BIT(last[q]) : 0));
#ifdef RECORD
       assert(!slp[q] || live[q]);           /* nobody waits for a key that is free */
       assert(!mrk[q] || slp[q]);            /* no mark without a record */
#endif
       if
       :: live[q] ->
          a=HI(cur,q%SZ(cur));
#if NARR>1
          if :: FLG(hd[a])==UNINIT -> assert(par[cur]); a=gh[where[q]]; assert(a/MB==cur-1) :: else -> assert(FLG(hd[a])==NORMAL) fi;
#endif
          x=IDX(hd[a]); fnd=false;
          do
          :: x==NIL -> break
          :: x!=NIL && x==where[q] -> fnd=true; break
          :: x!=NIL && x!=where[q] -> x=nxt[x]
          od;
          assert(fnd); assert(key[x]==q && tok[x]==last[q]);
          assert(TAG(st[x])==HELD || (TAG(st[x])==FROZEN && FLG(hd[a])==FRZ))
       :: else
       fi;
       q++
    :: q==NK -> break
    od;
#ifdef RECORD   /* no mark without a record */
    x=0;
    do
    :: x<NN -> assert(TAG(st[x])!=MARK || mrk[key[x]]); x++
    :: x==NN -> break
    od;
#endif
    assert((pool|lnk)==BIT(NN)-1)
  }
}
/* a holder of key k1, token t1 in cell n1 of bucket index a1, deadline d1 (set up before the processes start) */
#define PRED(n1,k1,t1,nx1,a1,d1) st[n1]=ST(1,HELD,d1); key[n1]=k1; tok[n1]=t1; nxt[n1]=nx1; gl[n1]=1; gh[n1]=a1; lnk=lnk|BIT(n1); pool=pool&(255-BIT(n1)); live[k1]=true; last[k1]=t1; where[k1]=n1; gdl[k1]=d1; open[k1]=open[k1]|BIT(t1)
#define PRE(n1,k1,t1,nx1,a1) PRED(n1,k1,t1,nx1,a1,NEWDL)
#define PREDEAD(n1,k1,t1,nx1,a1) st[n1]=ST(1,DEAD,0); key[n1]=k1; tok[n1]=t1; nxt[n1]=nx1; gl[n1]=1; gh[n1]=a1; lnk=lnk|BIT(n1); pool=pool&(255-BIT(n1)); last[k1]=MAX(last[k1],t1)
#ifdef SHUT
#define SETUPX alw=L0; lim[0]=1
#else
#define SETUPX skip
#endif
#define SETUP \
    SETUPX; \
    pool=BIT(NN)-1; lnk=0; clk=0; cur=0; \
    b=0; do :: b<NARR*MB -> hd[b]=HW(0,NIL,UNINIT); b++ :: b==NARR*MB -> break od; \
    b=0; do :: b<SZ(0) -> hd[b]=HW(0,NIL,NORMAL); b++ :: b==SZ(0) -> break od; \
    b=1; do :: b<NARR -> par[b]=true; b++ :: b>=NARR -> break od; \
    b=0; do :: b<NN -> nxt[b]=NIL; b++ :: b==NN -> break od; \
    b=0; do :: b<NK -> where[b]=NIL; b++ :: b==NK -> break od; b=0; run Mon()
