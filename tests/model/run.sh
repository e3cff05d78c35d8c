#!/bin/bash
# run.sh -- verify the models, then break one rule at a time: each mutation MUST fail.
# One PASS/FAIL line each; exits nonzero on any surprise.  Needs spin and gcc.
#   FULL=1   also the bigger runs        JOBS=n   runs at once (default 2)
#   ONLY=re  only the names that match   TMO, MEMKB   limits of one run (seconds, KB); a bitstate run that comes to
#   TMO is not a failure: how many states it has seen is its result
# A line: kind|name|switches.  kind  v must pass   V the same, FULL only   B the same with bitstate hashing: not
# exhaustive, finds what it finds (FULL only)   l must have no endless cycle (walks bounded)   m must fail   n must
# have an endless cycle.  rules.sh comes first.
here=$(cd "$(dirname "$0")" && pwd)
one() { # kind name switches
  local kind=$1 name=$2 defs=$3 d="$WORK/$2" cc="-O0 -DSAFETY" po="" want=0 tmo=${TMO:-200} store=-DCOLLAPSE st err why
  local mem=${MEMKB:-2900000} hash=22
  case $kind in
    V) cc="-O2 -DSAFETY"; tmo=${TMO:-1800}; mem=${MEMKB:-5900000}; hash=25;;
    B) cc="-O2 -DSAFETY"; tmo=${TMO:-1800}; mem=${MEMKB:-5900000}; hash=33; store=-DBITSTATE; po="-Q$(((tmo + 59) / 60))"; tmo=$((tmo + 120));;
    l) cc="-O0 -DNP"; po="-l"; defs="$defs -DBOUND";;
    m) want=1;;
    n) cc="-O0 -DNP"; po="-l"; want=1; defs="$defs -DBOUND";;
  esac
  mkdir -p "$d"; cp "$here"/*.pml "$d"/; cd "$d" || return
  # shellcheck disable=SC2086
  if ! spin -a $defs s.pml > spin.log 2>&1 || ! gcc $cc -w -DNOFAIR $store -DVECTORSZ=2048 -o pan pan.c > gcc.log 2>&1; then
    echo "FAIL $name (does not build: $(cat spin.log gcc.log 2>/dev/null | tail -1))"; touch "$WORK/surprise"; return
  fi
  # shellcheck disable=SC2086
  ( ulimit -v "$mem"; timeout "$tmo" ./pan -m2000000 -w$hash $po > out.log 2>&1; echo "rc=$?" >> out.log )
  st="$(grep -m1 'states, stored' out.log | awk '{print $1}') states, $(grep -o 'elapsed time [0-9.]*' out.log | cut -d' ' -f3) s"
  [ "$kind" = B ] && st="$st, bitstate, $(grep -o 'hash factor: [0-9.]*' out.log)"
  err=$(grep -o 'errors: [0-9]*' out.log | cut -d' ' -f2); why=$(grep -m1 'pan:[0-9]*:' out.log | cut -c1-110)
  if [ -z "$err" ]; then echo "FAIL $name (no result: $(tail -1 out.log))"; touch "$WORK/surprise"
  elif [ "$kind" = B ] && [ "$err" = 0 ] && grep -qE '^rc=0' out.log && grep -qi 'search not completed' out.log; then echo "PASS $name (stopped; $st)"
  elif [ "$err" = 0 ] && grep -qiE 'search not completed|out of memory|search depth too small' out.log; then
    echo "FAIL $name (search not completed; $st)"; touch "$WORK/surprise"
  elif [ "$want" = 0 ] && [ "$err" = 0 ]; then echo "PASS $name ($st)"
  elif [ "$want" = 1 ] && [ "$err" != 0 ]; then echo "PASS $name (caught: $why)"
  elif [ "$want" = 1 ]; then echo "FAIL $name (NOT caught; $st)"; touch "$WORK/surprise"
  else echo "FAIL $name ($why; $st)"; touch "$WORK/surprise"; fi
  cd /; rm -rf "$d"
}
export -f one; export here
WORK=$(mktemp -d); export WORK; trap 'rm -rf "$WORK"' EXIT
command -v spin > /dev/null && command -v gcc > /dev/null || { echo "FAIL needs spin and gcc"; exit 2; }
"$here/rules.sh" || touch "$WORK/surprise"
grep -v '^#' > "$WORK/all" <<'L'
# ---- A: a fresh array per generation, cached references, no reads of `current`
v|base|-DSEQ=0 -DP0 -DA0=1 -DA1=1 -DNN=3
v|A_grow_2growers|-DSEQ=1 -DP0 -DNN=4 -DLOWPOP -DH=2
v|A_grow_1_2_4|-DSEQ=4 -DP0 -DNN=4 -DLOWPOP -DH=1 -DN0=1
v|A_rebase_1_1_1_1|-DSEQ=3 -DP0 -DNN=4 -DLOWPOP -DH=1 -DN0=1
v|A_mixed_caches|-DSEQ=3 -DNARR=2 -DPUBD -DP0 -DNN=4 -DLOWPOP -DN0=1 -DA0=1
V|A_grow_two_leases|-DSEQ=1 -DP0 -DP1 -DNN=5 -DLOWPOP -DH=1
V|A_grow_acquirer|-DSEQ=1 -DP0 -DNN=4 -DLOWPOP -DH=1 -DA1=1
V|A_grow_contended|-DSEQ=1 -DP0 -DP1 -DNOH1 -DNN=5 -DLOWPOP -DH=1 -DA0=1
V|A_mixed_caches_3|-DSEQ=3 -DNARR=3 -DPUBD -DP0 -DNN=4 -DLOWPOP -DH=1 -DA0=1
V|A_rebase_contended|-DSEQ=3 -DNARR=3 -DP0 -DNN=4 -DLOWPOP -DH=1 -DA0=1
# ---- B: shrinking
v|B_1_2_1|-DSEQ=5 -DP0 -DNN=4 -DLOWPOP -DH=1 -DN0=1
v|B_2_1_acquirer_small|-DSEQ=2 -DPUBD -DP0 -DP1 -DNOH1 -DNN=5 -DLOWPOP -DA1=1
V|B_2_1_contended|-DSEQ=2 -DP0 -DP1 -DNOH1 -DNN=5 -DLOWPOP -DH=1 -DA1=1
V|B_2_1_two_leases|-DSEQ=2 -DP0 -DP1 -DNN=5 -DLOWPOP -DH=1
V|B_2_1_acquirer|-DSEQ=2 -DP0 -DNN=4 -DLOWPOP -DH=1 -DA1=1
# ---- C: the wheel looks at any cell at any time
v|C_wheel_release|-DSEQ=0 -DEXP -DMAXT=1 -DP0 -DO0=1 -DA1=1 -DNN=3 -DLOWPOP
v|C_wheel_thief|-DSEQ=0 -DEXP -DMAXT=1 -DP0 -DO0=4 -DA0=1 -DNN=3 -DLOWPOP
v|C_wheel_grow|-DSEQ=1 -DPUBD -DEXP -DMAXT=1 -DP0 -DO0=1 -DNN=3 -DLOWPOP
v|C_wheel_shrink|-DSEQ=2 -DPUBD -DEXP -DMAXT=1 -DP0 -DO0=1 -DNN=3 -DLOWPOP
v|C_thief_shrink|-DSEQ=2 -DPUBD -DEXP -DMAXT=1 -DP1 -DO1=3 -DD1=1 -DNN=3 -DLOWPOP -DNOWHEEL -DA0=1
V|C_wheel_renew_thief|-DSEQ=0 -DEXP -DP0 -DO0=3 -DA0=1 -DNN=3
# ---- D: handles by life + key + token
v|D_stale_handle_other_key|-DSTALE=1 -DA1=1 -DNN=3
v|D_stale_handle_same_key|-DSTALE=2 -DA1=1 -DNN=3
v|D_handle_moves|-DSEQ=3 -DNARR=3 -DEXP -DMAXT=1 -DMOVE -DO0=3 -DP0 -DH=1 -DNN=3 -DLOWPOP -DNOWHEEL
# ---- E, F: reasons, one report per grant; renew never shortens
v|E_release_twice|-DSEQ=0 -DSHARED -DP0 -DS0=1 -DA1=1 -DNN=3
v|E_release_and_renew|-DSEQ=0 -DSHARED -DP0 -DS0=6 -DA1=1 -DNN=3
v|E_revoke|-DSEQ=0 -DP0 -DA1=1 -DRV=0 -DNN=3
v|F_two_renewers|-DSEQ=0 -DSHARED -DEXP -DP0 -DO0=6 -DS0=6 -DA0=1 -DNN=2 -DNOWHEEL
# ---- G: release by the word of the grant, which the thread may look for in any array
v|G_base|-DRELWORD -DSEQ=0 -DP0 -DA0=1 -DA1=1 -DNN=3
v|G_grow_2growers|-DRELWORD -DMOVE -DSEQ=1 -DP0 -DNN=4 -DLOWPOP -DH=2
v|G_grow_again|-DRELWORD -DMOVE -DSEQ=1 -DP0 -DN0=1 -DNN=4 -DLOWPOP -DH=1
v|G_grow_acquirer_small|-DRELWORD -DMOVE -DSEQ=1 -DPUBD -DP0 -DN0=1 -DA0=1 -DNN=3 -DLOWPOP
v|G_shrink_again|-DRELWORD -DMOVE -DSEQ=2 -DP0 -DO0=4 -DP1 -DN1=1 -DNN=4 -DLOWPOP -DH=1
v|G_shrink_acquirer_small|-DRELWORD -DMOVE -DSEQ=2 -DPUBD -DP0 -DN0=1 -DA1=1 -DNN=3 -DLOWPOP
v|G_shrink_revoke|-DRELWORD -DMOVE -DSEQ=2 -DPUBD -DRVOLD -DP0 -DO0=4 -DP1 -DRV=1 -DNRV=2 -DNN=3 -DLOWPOP
v|G_rebase|-DRELWORD -DMOVE -DSEQ=3 -DNARR=3 -DP0 -DN0=1 -DNN=4 -DLOWPOP -DH=1
v|G_rebase_far|-DRELWORD -DBSTEP=3 -DMOVE -DSEQ=3 -DNARR=3 -DP0 -DN0=1 -DNN=4 -DLOWPOP -DH=1
v|G_mixed_caches|-DRELWORD -DMOVE -DSEQ=3 -DNARR=2 -DPUBD -DP0 -DN0=1 -DA0=1 -DNN=4 -DLOWPOP
v|G_wheel|-DRELWORD -DSEQ=0 -DEXP -DMAXT=1 -DP0 -DO0=1 -DA1=1 -DNN=3 -DLOWPOP
v|G_wheel_grow|-DRELWORD -DMOVE -DSEQ=1 -DPUBD -DEXP -DMAXT=1 -DP0 -DO0=1 -DNN=3 -DLOWPOP
v|G_wheel_shrink|-DRELWORD -DMOVE -DSEQ=2 -DPUBD -DEXP -DMAXT=1 -DP0 -DO0=1 -DNN=3 -DLOWPOP
v|G_wheel_thief|-DRELWORD -DSEQ=0 -DEXP -DMAXT=1 -DP0 -DO0=3 -DA0=1 -DNN=3 -DLOWPOP
v|G_thief_grow|-DRELWORD -DMOVE -DSEQ=1 -DPUBD -DEXP -DMAXT=1 -DP0 -DO0=3 -DA0=1 -DNN=3 -DLOWPOP -DNOWHEEL
v|G_handle_moves|-DRELWORD -DMOVE -DSEQ=3 -DNARR=3 -DEXP -DMAXT=1 -DO0=3 -DP0 -DH=1 -DNN=3 -DLOWPOP -DNOWHEEL
v|G_revoke|-DRELWORD -DSEQ=0 -DP0 -DA1=1 -DRV=0 -DNN=3
v|G_release_twice|-DRELWORD -DSEQ=0 -DSHARED -DP0 -DS0=1 -DA1=1 -DNN=3
v|G_renewals|-DRELWORD -DSEQ=0 -DSHARED -DEXP -DP0 -DO0=3 -DS0=6 -DA1=1 -DOA1=4 -DNN=2 -DNOWHEEL
v|G_stale_handle_other_key|-DRELWORD -DSTALE=1 -DA1=1 -DNN=3
v|G_stale_handle_same_key|-DRELWORD -DSTALE=2 -DA1=1 -DNN=3
V|G_grow_contended|-DRELWORD -DMOVE -DSEQ=1 -DP0 -DA0=1 -DNN=4 -DLOWPOP -DH=1
# ---- R: the record of a key, its mark, and those who wait (8)
v|R_wait|-DRELWORD -DRECORD -DSEQ=0 -DP0 -DQ0=1 -DNN=4 -DLOWPOP
v|R_two|-DRELWORD -DRECORD -DSEQ=0 -DP0 -DQ0=2 -DNN=5 -DLOWPOP
v|R_revoke|-DRECORD -DSEQ=0 -DP0 -DO0=4 -DRV=0 -DQ0=1 -DNN=4 -DLOWPOP
v|R_expire|-DRELWORD -DRECORD -DSEQ=0 -DEXP -DMAXT=1 -DP0 -DO0=4 -DQ0=1 -DNN=4 -DLOWPOP
v|R_leave_grow|-DRECORD -DSEQ=1 -DP0 -DO0=4 -DQ0=1 -DQX=OX -DH=1 -DNN=7 -DLOWPOP
v|R_wait_grow|-DRECORD -DSEQ=1 -DPUBD -DP0 -DQ0=1 -DNN=5 -DLOWPOP
v|R_wait_shrink|-DRECORD -DSEQ=2 -DPUBD -DP0 -DQ0=1 -DNN=5 -DLOWPOP
v|R_leave_shed|-DRECORD -DSHED -DSEQ=0 -DP0 -DO0=4 -DQ0=1 -DQX=OX -DB0=1 -DNN=7 -DLOWPOP
v|R_issue|-DRECORD -DSEQ=0 -DQ0=1 -DQX=OI -DA0=2 -DNN=4 -DLOWPOP
v|R_take|-DRECORD -DSEQ=0 -DP0 -DQ0=1 -DQX=OK -DNN=4 -DLOWPOP
v|R_take_head|-DRECORD -DSEQ=0 -DP0 -DQ0=1 -DQX=OG -DNN=4 -DLOWPOP
V|R_wait_beside|-DRELWORD -DRECORD -DSEQ=0 -DP0 -DP1 -DQ0=1 -DNN=5 -DLOWPOP
V|R_leave|-DRELWORD -DRECORD -DSEQ=0 -DP0 -DQ0=1 -DQX=OX -DA0=1 -DNN=5 -DLOWPOP
# ---- S: a bucket rebuilt in place (12)
v|S_shed|-DRELWORD -DSHED -DSEQ=0 -DP0 -DB0=1 -DN0=1 -DNN=5 -DLOWPOP
v|S_shed_two|-DRELWORD -DSHED -DSEQ=0 -DP0 -DP1 -DNOH1 -DB0=2 -DNN=8 -DLOWPOP
v|S_shed_revoke|-DSHED -DSEQ=0 -DP0 -DO0=4 -DRV=0 -DB0=1 -DNN=5 -DLOWPOP
v|S_shed_grow|-DRELWORD -DSHED -DSEQ=1 -DP0 -DO0=4 -DB0=1 -DH=1 -DNN=6 -DLOWPOP
V|S_shed_grow_revoke|-DRELWORD -DSHED -DSEQ=1 -DP0 -DO0=4 -DB0=1 -DH=1 -DRV=0 -DNN=6 -DLOWPOP
V|S_shed_contended|-DSHED -DSEQ=0 -DP0 -DO0=4 -DRV=0 -DB0=1 -DA0=1 -DOA0=4 -DNN=6 -DLOWPOP
v|S_shed_wheel|-DSHED -DSEQ=0 -DEXP -DMAXT=1 -DP0 -DO0=1 -DB0=1 -DNN=5 -DLOWPOP
V|S_shed_grow_release|-DRELWORD -DSHED -DSEQ=1 -DP0 -DB0=1 -DH=1 -DNN=6 -DLOWPOP
# ---- W: fields that come to their end
v|W_version|-DRELWORD -DDYNBASE -DVLIM=2 -DVMASK=3 -DSEQ=3 -DNARR=3 -DP0 -DN0=1 -DA1=1 -DNN=4 -DLOWPOP
v|W_version_shed|-DRELWORD -DDYNBASE -DVLIM=2 -DVMASK=3 -DSHED -DSEQ=3 -DNARR=3 -DP0 -DA0=1 -DB0=1 -DNN=7 -DLOWPOP
v|W_life|-DLMASK=1 -DLTICK -DSEQ=0 -DP0 -DRV=0 -DA1=2 -DNN=2 -DLOWPOP
v|W_deadline|-DERA -DEXP -DMAXT=2 -DNREN=2 -DSHED -DSEQ=0 -DP0 -DO0=2 -DA0=1 -DOA0=4 -DNOWHEEL -DNN=4 -DLOWPOP
# ---- O: cells run out
v|O_cells|-DQUOTA=2 -DSEQ=1 -DPUBD -DP0 -DA1=1 -DN0=1 -DNN=6 -DLOWPOP
V|O_cells_grow|-DQUOTA=2 -DSEQ=1 -DP0 -DA1=1 -DH=1 -DNN=7 -DLOWPOP
# ---- T: the table is shut, and opened again with another block of tokens
v|T_shut|-DSHUT -DL0=2 -DF1=5 -DL1=6 -DRELWORD -DDYNBASE -DSEQ=3 -DNARR=3 -DA0=1 -DNN=4 -DLOWPOP
v|T_shut_two|-DSHUT -DL0=2 -DF1=5 -DL1=6 -DRELWORD -DDYNBASE -DSEQ=3 -DNARR=3 -DA0=2 -DNN=4 -DLOWPOP
B|T_shut_held|-DSHUT -DL0=3 -DF1=6 -DL1=7 -DRELWORD -DDYNBASE -DSEQ=3 -DNARR=3 -DP0 -DA0=1 -DNN=4 -DLOWPOP
# ---- X: more at once
V|X_three_workers|-DRELWORD -DSEQ=0 -DA0=1 -DA1=1 -DA2=1 -DNN=4 -DLOWPOP
B|X_four_generations|-DRELWORD -DSEQ=3 -DNARR=4 -DP0 -DNN=5 -DLOWPOP -DH=2
B|X_helpers_expiry|-DRELWORD -DSEQ=1 -DEXP -DMAXT=1 -DP0 -DO0=4 -DA0=1 -DNOWHEEL -DNN=6 -DLOWPOP -DH=2
B|X_growers_rebuild_expiry|-DRELWORD -DSHED -DSEQ=1 -DEXP -DMAXT=1 -DP0 -DO0=4 -DB0=1 -DNN=6 -DLOWPOP -DH=2
B|X_record_growth_expiry|-DRELWORD -DRECORD -DSEQ=1 -DEXP -DMAXT=1 -DP0 -DO0=1 -DQ0=1 -DNN=7 -DLOWPOP -DH=1
# ---- no endless cycle
l|L_grow|-DSEQ=1 -DPUBD -DP0 -DNN=3 -DLOWPOP -DA0=1
l|L_shrink|-DSEQ=2 -DPUBD -DP0 -DNN=3 -DLOWPOP -DA1=1
# ---- mutations
m|M_done_as_empty|-DSEQ=1 -DP0 -DNN=4 -DLOWPOP -DH=1 -DA0=1 -DM_DONEEMPTY
m|M_uninit_as_empty|-DSEQ=1 -DP0 -DNN=4 -DLOWPOP -DH=1 -DA0=1 -DM_UNINITEMPTY
n|M_no_refresh|-DSEQ=1 -DPUBD -DP0 -DNN=3 -DLOWPOP -DA0=1 -DM_NOREFRESH
m|M_publish_while_parent_remains|-DSEQ=3 -DNARR=3 -DPUBD -DP0 -DNN=4 -DLOWPOP -DH=1 -DA0=1 -DM_PUBEARLY
m|M_parent_none_early|-DSEQ=8 -DP0 -DNN=4 -DLOWPOP -DH=1 -DA1=1 -DPUBD -DM_PARNONE
m|M_child_version_fresh|-DSEQ=3 -DNARR=2 -DP1 -DNN=4 -DLOWPOP -DH=1 -DN1=1 -DM_CHILDVER
m|M_freeze_no_reload|-DSEQ=1 -DP0 -DP1 -DNN=5 -DLOWPOP -DH=2 -DNOH1 -DN0=1 -DM_NOFRZCHK
m|M_cells_not_frozen|-DSEQ=1 -DP0 -DO0=4 -DRV=0 -DH=1 -DNN=4 -DLOWPOP -DM_NOCELLFRZ
m|M_done_before_second_child|-DSEQ=1 -DP0 -DP1 -DNN=5 -DLOWPOP -DH=1 -DM_DONEEARLY
m|M_done_by_store|-DSEQ=1 -DP0 -DNN=4 -DLOWPOP -DH=2 -DM_DONESTORE
m|M_dead_means_over_1|-DSEQ=1 -DP0 -DP1 -DNOH1 -DNN=5 -DLOWPOP -DH=1 -DA0=1 -DM_DEADEXP
m|M_dead_means_over_2|-DSEQ=1 -DP0 -DNN=4 -DLOWPOP -DH=1 -DM_DEADEXP
m|M_shrink_freezes_one_parent|-DSEQ=2 -DP0 -DP1 -DNN=4 -DLOWPOP -DH=1 -DM_ONEFRZ
m|M_shrink_version_of_one_parent|-DSEQ=2 -DP0 -DP1 -DN1=1 -DNN=4 -DLOWPOP -DH=1 -DM_ONEVER
m|M_shrink_frees_on_publish|-DSEQ=2 -DP0 -DP1 -DNN=4 -DLOWPOP -DH=2 -DN0=1 -DNOH1 -DM_FREEPUB
m|M_shrink_copies_one_chain|-DSEQ=2 -DP0 -DP1 -DNN=4 -DLOWPOP -DH=1 -DM_COPYONE
m|M_shrink_done_by_store|-DSEQ=2 -DP0 -DP1 -DNN=5 -DLOWPOP -DH=2 -DNOH1 -DM_DONESTORE
m|M_killed_copied_as_live|-DSEQ=3 -DNARR=2 -DP0 -DP1 -DNOH1 -DNN=5 -DLOWPOP -DH=1 -DA0=1 -DM_COPYKILLED
m|M_wheel_not_found_linked|-DSEQ=0 -DEXP -DMAXT=1 -DP0 -DO0=1 -DA1=1 -DNN=3 -DLOWPOP -DM_WNOLINK
m|M_wheel_cas_without_life|-DSEQ=0 -DEXP -DMAXT=1 -DP0 -DO0=1 -DN0=1 -DNN=2 -DLOWPOP -DM_WNOLIFE
m|M_failed_grant_left_held|-DSEQ=0 -DA0=1 -DA2=1 -DOA0=4 -DOA2=4 -DNN=3 -DLOWPOP -DM_GIVEHELD
m|M_lost_copy_left_held|-DSEQ=3 -DNARR=2 -DP0 -DH=2 -DNN=3 -DLOWPOP -DM_GIVECOPY
m|M_handle_by_life_only_1|-DSTALE=1 -DA1=1 -DNN=3 -DM_HNOKEY
m|M_handle_by_life_only_2|-DSTALE=2 -DA1=1 -DNN=3 -DM_HNOKEY
m|M_other_life_means_expired|-DSEQ=3 -DNARR=3 -DP0 -DNN=4 -DLOWPOP -DH=1 -DM_LIFEEXP
m|M_frozen_means_expired|-DSEQ=1 -DP0 -DNN=4 -DLOWPOP -DH=1 -DM_FROZENEXP
m|M_release_state_before_bucket|-DSEQ=0 -DEXP -DMAXT=1 -DP0 -DO0=1 -DA1=1 -DNN=3 -DLOWPOP -DM_RSF
m|M_release_any_flag|-DSEQ=1 -DP0 -DNN=4 -DLOWPOP -DH=1 -DM_HANYFLAG
m|M_renew_kills_unlocated|-DSEQ=3 -DNARR=3 -DEXP -DMAXT=1 -DMOVE -DO0=3 -DP0 -DH=1 -DNN=3 -DLOWPOP -DNOWHEEL -DM_RNKILL
m|M_reason_lost|-DSEQ=0 -DP0 -DO0=1 -DA1=2 -DNN=3 -DLOWPOP -DM_REASON
m|M_skipper_silent|-DSEQ=0 -DP0 -DO0=1 -DA1=2 -DNN=3 -DLOWPOP -DM_SNOREP
m|M_killer_reports_unconfirmed|-DSEQ=0 -DEXP -DMAXT=1 -DP0 -DO0=1 -DNN=2 -DLOWPOP -DM_NOREACH
m|M_killer_never_unlinks|-DSEQ=0 -DEXP -DMAXT=1 -DP0 -DO0=1 -DNN=2 -DLOWPOP -DM_NOKUNL
m|M_deep_release_plain|-DSEQ=0 -DSHARED -DP0 -DS0=1 -DA1=1 -DNN=3 -DM_RELPLAIN
m|M_life_not_raised|-DSEQ=0 -DP0 -DO0=6 -DRV=0 -DA1=1 -DNN=2 -DM_NOBUMP
m|M_held_unconfirmed|-DSEQ=0 -DP0 -DO0=1 -DA1=2 -DA0=1 -DNN=3 -DM_NOHELDCHK
m|M_renew_shortens|-DSEQ=0 -DSHARED -DEXP -DP0 -DO0=6 -DS0=6 -DA0=1 -DNN=2 -DNOWHEEL -DM_SHORTEN
m|M_word_version_of_grant|-DRELWORD -DMOVE -DSEQ=2 -DPUBD -DRVOLD -DP0 -DO0=4 -DP1 -DRV=1 -DNRV=2 -DNN=3 -DLOWPOP -DM_RWGRANTVER
m|M_word_base_not_raised|-DRELWORD -DBSTEP=0 -DMOVE -DSEQ=2 -DPUBD -DRVOLD -DP0 -DO0=4 -DP1 -DRV=1 -DNRV=2 -DNN=3 -DLOWPOP -DM_SAMEVER
m|M_word_any_version|-DRELWORD -DSEQ=0 -DP0 -DRV=0 -DA0=1 -DNN=2 -DM_RWANYVER
m|M_word_state_unchecked|-DRELWORD -DSEQ=0 -DP0 -DRV=0 -DNN=2 -DM_RWNOSTATE
m|M_word_next_unchecked|-DRELWORD -DSEQ=0 -DP0 -DP1 -DNN=2 -DM_RWNONEXT
m|M_kill_not_noted|-DRECORD -DSEQ=0 -DP0 -DO0=4 -DRV=0 -DQ0=1 -DNN=4 -DLOWPOP -DM_KILLNONOTE
m|M_release_not_noted|-DRECORD -DSEQ=0 -DP0 -DQ0=2 -DNN=5 -DLOWPOP -DM_RELNONOTE
m|M_word_what_is_behind_unchecked|-DRELWORD -DRECORD -DSEQ=0 -DP0 -DQ0=2 -DNN=5 -DLOWPOP -DM_RWNOBEHIND
m|M_marker_does_not_look|-DRECORD -DSEQ=0 -DP0 -DO0=4 -DP1 -DNOH1 -DRV=0 -DQ0=1 -DNN=5 -DLOWPOP -DM_MARKNOLOOK
m|M_mark_on_any_word|-DRECORD -DSEQ=0 -DP0 -DQ0=1 -DNN=4 -DLOWPOP -DM_MARKANYWORD
m|M_mark_not_heeded|-DRECORD -DSEQ=0 -DP0 -DQ0=1 -DA0=1 -DNN=5 -DLOWPOP -DM_BARGE
m|M_mark_not_frozen|-DRECORD -DSEQ=1 -DP0 -DO0=4 -DQ0=1 -DQX=OX -DH=1 -DNN=7 -DLOWPOP -DM_MARKNOTFROZEN
m|M_mark_not_copied|-DRECORD -DSEQ=1 -DP0 -DO0=4 -DQ0=1 -DQX=OX -DH=1 -DNN=7 -DLOWPOP -DM_MARKNOTCOPIED
m|M_frozen_mark_is_gone|-DRECORD -DSEQ=1 -DP0 -DO0=4 -DQ0=1 -DQX=OX -DH=1 -DNN=7 -DLOWPOP -DM_FROZENMARKGONE
m|M_mark_stays|-DRECORD -DSEQ=0 -DQ0=1 -DQX=OI -DA0=1 -DNN=4 -DLOWPOP -DM_MARKSTAYS
m|M_issued_beside_a_lease|-DRECORD -DSEQ=0 -DQ0=1 -DQX=OI -DA0=2 -DNN=4 -DLOWPOP -DM_ISSUEBESIDE
m|M_issued_without_version|-DRECORD -DSEQ=0 -DQ0=1 -DQX=OI -DA0=2 -DNN=4 -DLOWPOP -DM_ISSUENOVERSION
m|M_taken_over_unseen|-DRECORD -DSEQ=0 -DP0 -DQ0=1 -DQX=OG -DNN=4 -DLOWPOP -DM_TAKENUNSEEN
m|M_rebuild_copies_killed|-DSHED -DSEQ=0 -DP0 -DO0=4 -DRV=0 -DB0=1 -DNN=5 -DLOWPOP -DM_COPYKILLED
m|M_rebuild_freezes_no_cells|-DSHED -DSEQ=0 -DP0 -DO0=4 -DRV=0 -DB0=1 -DNN=5 -DLOWPOP -DM_NOCELLFRZ
m|M_rebuild_on_any_word|-DRELWORD -DSHED -DSEQ=0 -DP0 -DP1 -DNOH1 -DB0=2 -DNN=8 -DLOWPOP -DM_RBANY
m|M_growth_leaves_a_rebuild|-DRELWORD -DSHED -DSEQ=1 -DP0 -DO0=4 -DB0=1 -DH=1 -DNN=6 -DLOWPOP -DM_RBDASDONE
m|M_version_wraps|-DRELWORD -DVMASK=3 -DSEQ=0 -DP0 -DN0=2 -DA0=2 -DNN=4 -DLOWPOP -DM_WRAP
m|M_life_and_deadline_repeat|-DLMASK=1 -DSEQ=0 -DP0 -DRV=0 -DA1=2 -DNN=2 -DLOWPOP
m|M_era_left|-DERA -DEXP -DMAXT=2 -DNREN=2 -DSHED -DSEQ=0 -DP0 -DO0=2 -DA0=1 -DOA0=4 -DNOWHEEL -DNN=4 -DLOWPOP -DM_ERALEFT
m|M_grants_leave_no_cells|-DQUOTA=2 -DSEQ=1 -DP0 -DA1=1 -DPUBD -DNN=2 -DLOWPOP
m|M_shut_by_allowance|-DSHUT -DL0=2 -DF1=5 -DL1=6 -DRELWORD -DDYNBASE -DSEQ=3 -DNARR=3 -DA0=1 -DNN=4 -DLOWPOP -DM_SHUTBYALLOWANCE
m|M_shut_before_all_moved|-DSHUT -DL0=2 -DF1=5 -DL1=6 -DRELWORD -DDYNBASE -DSEQ=3 -DNARR=3 -DA0=1 -DNN=4 -DLOWPOP -DM_SHUTUNMOVED
m|M_shut_limit_of_versions|-DSHUT -DL0=2 -DF1=5 -DL1=6 -DRELWORD -DDYNBASE -DSEQ=3 -DNARR=3 -DA0=1 -DNN=4 -DLOWPOP -DM_SHUTLIMIT
m|M_opened_with_the_old_base|-DSHUT -DL0=2 -DF1=5 -DL1=6 -DRELWORD -DDYNBASE -DSEQ=3 -DNARR=3 -DA0=1 -DNN=4 -DLOWPOP -DM_BASENOTRAISED
L
if [ "$FULL" = 1 ]; then cat "$WORK/all"; else grep -v '^[VB]' "$WORK/all"; fi | grep -E "^[^|]*\|[^|]*(${ONLY:-})[^|]*\|" > "$WORK/list"
want=$(wc -l < "$WORK/list")
tr '\n' '\0' < "$WORK/list" | xargs -0 -P "${JOBS:-2}" -I{} bash -c 'IFS="|" read -r k n d <<< "{}"; one "$k" "$n" "$d"' | tee "$WORK/results"
good=$(grep -c '^PASS' "$WORK/results")
if [ -e "$WORK/surprise" ] || [ "$want" = 0 ] || [ "$good" != "$want" ]; then echo "FAIL: $good of $want as expected"; exit 1; fi
echo "PASS: all $want as expected"
