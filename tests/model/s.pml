/* s.pml -- one scenario, built from switches (see run.sh and README.md):
 *   SEQ        sizes of the arrays                    P0, P1     k0 / k1 held at the start (cells 0, 1)
 *   O0,N0      what k0's holder does, grants after    O1,N1      the same for k1 (-DNOH1: nobody uses k1's handle)
 *   A0,OA0     an acquirer of k0: grants, options     A1,OA1     an acquirer of k1      A2,OA2 another of k0
 *   H          growers (0..2)                         EXP        clock and wheel (NOWHEEL: none)
 *   S0         a second user of k0's handle           RV         a revoker of this key, NRV times
 *              (RVOLD: it caches array 0, for the last time the newest)
 *   Q0,QX      the record of k0: waiters, options    B0         rebuilds of k0's bucket
 *   PUBD       array 1 is published already; holders still cache array 0, the others array 1
 *   STALE      1: cell 0 is k1's now, 2: k0's next lease; in both a worker holds a handle of the same
 *              life for k0, token 1 (as if the life had wrapped) */
#include "core.pml"
#ifndef O0
#define O0 OH
#endif
#ifndef N0
#define N0 0
#endif
#ifndef O1
#define O1 OH
#endif
#ifndef N1
#define N1 0
#endif
#ifndef OA0
#define OA0 OH
#endif
#ifndef OA1
#define OA1 OH
#endif
#ifndef OA2
#define OA2 OH
#endif
#ifndef NRV
#define NRV 1
#endif
#ifndef QX
#define QX 0
#endif
#ifndef H
#define H 0
#endif
#ifndef D1
#define D1 NEWDL
#endif
init { byte b; atomic { SETUP;
#ifdef PUBD
  cur=1;
#endif
#ifdef P0
  PRE(0,0,1,NIL,0); hd[0]=HW(1,0,NORMAL);
#endif
#ifdef P1
#if SEQ==2 || SEQ==6 || SEQ==7 || SEQ==8
  PRED(1,1,3,NIL,1,D1); hd[1]=HW(3,1,NORMAL);
#elif defined(P0)
  PRED(1,1,2,0,0,D1); hd[0]=HW(2,1,NORMAL);
#else
  PRED(1,1,2,NIL,0,D1); hd[0]=HW(2,1,NORMAL);
#endif
#endif
#ifdef P2   /* k2 on top of k0, in bucket 0 (needs P0, NK 3) */
  PRED(2,2,2,0,0,D2); hd[0]=HW(2,2,NORMAL);
  run Worker(32,2,0,O2,2,2,0);
#endif
#if defined(STALE) && STALE==1
  PRE(0,1,3,NIL,0); hd[0]=HW(3,0,NORMAL); last[0]=1;
  run Worker(1,0,0,O0,0,1,0);
#elif defined(STALE)
  PRE(0,0,3,NIL,0); hd[0]=HW(3,0,NORMAL);
  run Worker(1,0,0,O0,0,1,0); run Worker(2,0,0,OA,0,3,0);
#endif
#ifdef P0
  run Worker(1,0,N0,O0,0,1,0);
#endif
#if defined(P1) && !defined(NOH1)
#if SEQ==2 || SEQ==6 || SEQ==7 || SEQ==8
  run Worker(2,1,N1,O1,1,3,0);
#else
  run Worker(2,1,N1,O1,1,2,0);
#endif
#endif
#ifdef S0
  run Worker(4,0,0,S0,0,1,0);
#endif
#ifdef A0
  run Worker(8,0,A0,OA0,NIL,0,0);
#endif
#ifdef A1
  run Worker(16,1,A1,OA1,NIL,0,0);
#endif
#ifdef A2
  run Worker(64,0,A2,OA2,NIL,0,0);
#endif
#ifdef RV
  run Worker(0,RV,NRV,OV,NIL,0,0);
#endif
#ifdef Q0     /* the record of k0, Q0 waiters one after the other */
  run Worker(0,0,Q0,OQ+QX,NIL,0,0);
#endif
#ifdef B0     /* rebuilds of k0's bucket */
  run Worker(0,0,B0,OB,NIL,0,0);
#endif
#ifdef SHUT
  run Worker(0,0,1,OT,NIL,0,0);
#endif
#if H>0
  run Worker(0,0,0,OM,NIL,0,0);
#endif
#if H>1
  run Worker(0,0,0,OM,NIL,0,0);
#endif
#ifdef EXP
#ifndef NOWHEEL
  run Worker(0,0,0,OL,NIL,0,0);
#endif
  run Clock();
#endif
} }
