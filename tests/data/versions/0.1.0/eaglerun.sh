#!/bin/sh
# eaglerun: starts, watches and stops runs on a host. POSIX sh, /proc, and
# cat chmod date grep id ln ls mkdir mv printf readlink rm sleep tr (setsid and find where there are any).
# It is sent on the standard input of "/bin/sh -s"; tui/core/host/runs.py sends it and reads its answers, docs/runs.md
# describes the files. Answers are lines of tab-separated fields, the first one names the kind of line.
# Only functions here: what runs is the one call that the sender puts behind them.
# The sender drops comment lines and indentation, so no text over several lines may begin a line with a blank or '#'.

ER_NL='
'

er_init() {
  set -u
  set -f
  ER_LC=${LC_ALL-}
  ER_LCSET=${LC_ALL+x}
  LC_ALL=C
  export LC_ALL
  unset CDPATH EAGLETUI_RUN
  ER_UMASK=$(umask)
  umask 077
  ER_TAB=$(printf '\t')
  ER_IFS=" $ER_TAB$ER_NL"
  IFS=$ER_IFS
  ER_SNAP=
  [ -r /proc/self/stat ] || er_die no-proc
  { read -r ER_BOOT < /proc/sys/kernel/random/boot_id; } 2>/dev/null || ER_BOOT=noboot
  ER_NS=$(readlink /proc/self/ns/pid 2>/dev/null) || ER_NS=nons
  ER_UID=$(id -u)
  ER_HOSTID=$(cat /proc/sys/kernel/hostname 2>/dev/null || uname -n)
  ER_HOSTID=$(printf %s "$ER_HOSTID" | tr -c 'A-Za-z0-9._-' _)
  # State directories, best first, one a line. A home on NFS is shared by many hosts, so each has a level of its own.
  if [ -n "${EAGLETUI_STATE-}" ]; then
    ER_ROOTS=$EAGLETUI_STATE
  elif [ -n "${EAGLETUI_HOME-}" ]; then
    ER_ROOTS=$EAGLETUI_HOME/state
  else
    ER_ROOTS=${XDG_STATE_HOME:+$XDG_STATE_HOME/eagletui$ER_NL}
    case ${HOME-} in ''|/) ;; *) ER_ROOTS=$ER_ROOTS$HOME/.local/state/eagletui$ER_NL ;; esac
    ER_ROOTS=$ER_ROOTS/var/tmp/eagletui-$ER_UID$ER_NL/tmp/eagletui-$ER_UID
  fi
}

er_die() { # slug words... : one error line, the end
  _slug=$1
  shift
  printf 'error\t%s\t%s\n' "$_slug" "$*"
  exit 1
}

er_valid() { # a run id that is safe as a file name
  case $1 in ''|.*|-*|*[!A-Za-z0-9._-]*) return 1 ;; esac
  [ ${#1} -le 100 ]
}

er_own_dir() { # a directory of ours that is no symbolic link
  [ -d "$1" ] && [ ! -h "$1" ] && [ -O "$1" ]
}

er_private_dir() { # makes or accepts a directory that is ours alone and can be written
  [ -d "$1" ] || mkdir -p "$1" 2>/dev/null || return 1
  er_own_dir "$1" && chmod 700 "$1" 2>/dev/null && [ -w "$1" ] && [ -x "$1" ]
}

er_new_root() { # ER_ROOT: the first state directory that takes a file (not read-only, not full, no quota)
  IFS=$ER_NL
  for _r in $ER_ROOTS; do
    IFS=$ER_IFS
    case $_r in /*) ;; *) continue ;; esac
    er_private_dir "$_r" && er_private_dir "$_r/$ER_HOSTID" || continue
    ER_ROOT=$_r/$ER_HOSTID
    er_private_dir "$ER_ROOT/runs" && er_private_dir "$ER_ROOT/locks" || continue
    er_put "$ER_ROOT/.try" try && rm -f "$ER_ROOT/.try" && return
  done
  IFS=$ER_IFS
  er_die no-state-dir "$ER_ROOTS"
}

er_find() { # id -> D: directory of the run, a claimed one first
  er_valid "$1" || er_die bad-id "$1"
  D=
  IFS=$ER_NL
  for _r in $ER_ROOTS; do
    er_own_dir "$_r/$ER_HOSTID/runs/$1" || continue
    [ -n "$D" ] && [ ! -d "$_r/$ER_HOSTID/runs/$1/claim" ] && continue
    D=$_r/$ER_HOSTID/runs/$1
    [ -d "$D/claim" ] && break
  done
  IFS=$ER_IFS
  [ -n "$D" ]
}

er_put() { # path text : a small file, whole or not at all
  if ( printf '%s\n' "$2" > "$1.t$$" ) 2>/dev/null && mv -f "$1.t$$" "$1" 2>/dev/null; then return 0; fi
  rm -f "$1.t$$" 2>/dev/null
  return 1
}

er_now() { date +%s; }

er_nap() { sleep 0.2 2>/dev/null || sleep 1; }

er_up() { # UP: seconds since boot, no clock change moves it
  read -r UP _ < /proc/uptime
  UP=${UP%%.*}
}

er_fields() { # text of /proc/PID/stat -> P_*; the name in it may hold blanks, parentheses and newlines
  case $1 in *') '*) ;; *) return 1 ;; esac
  # shellcheck disable=SC2086
  set -- ${1##*) }
  [ $# -ge 20 ] || return 1
  P_STATE=$1 P_PPID=$2 P_PGRP=$3 P_SID=$4
  shift 19
  P_START=$1
}

er_pstat() { # pid -> P_STATE P_PPID P_PGRP P_SID P_START
  { IFS= read -r _s < "/proc/$1/stat"; } 2>/dev/null || return 1
  er_fields "$_s" || { _s=$(cat "/proc/$1/stat" 2>/dev/null) && er_fields "$_s"; }
}

er_alive() { # pid start : this very process lives (the number was not used again, and it is no zombie)
  er_pstat "$1" && [ "$P_START" = "$2" ] || return 1
  case $P_STATE in Z|X|x) return 1 ;; esac
}

er_scan() { # ER_SNAP: every live process " pid:start:ppid:pgrp:sid"; ER_MARK: those with our mark " pid:start:run"
  ER_SNAP=
  ER_MARK=
  _envs=
  set +f
  _tab=$(cat /proc/[0-9]*/stat 2>/dev/null)
  set -f
  IFS=$ER_NL
  # shellcheck disable=SC2086
  set -- $_tab
  IFS=$ER_IFS
  for _line; do
    _p=${_line%% *}
    case $_p in ''|*[!0-9]*) continue ;; esac
    er_fields "$_line" || er_pstat "$_p" || continue
    case $P_STATE in Z|X|x) continue ;; esac
    ER_SNAP="$ER_SNAP $_p:$P_START:$P_PPID:$P_PGRP:$P_SID"
    [ -O "/proc/$_p" ] && _envs="$_envs /proc/$_p/environ"
  done
  if printf 'a\0b=\0' | grep -qF b= 2>/dev/null; then
    # shellcheck disable=SC2086
    _envs=$(grep -lF EAGLETUI_RUN= $_envs 2>/dev/null)
  fi # else this grep stops at a NUL, and each file is looked at
  for _e in $_envs; do
    _v=$(tr '\n\0' '\001\n' < "$_e" 2>/dev/null | grep '^EAGLETUI_RUN=') || continue
    _p=${_e#/proc/}
    _p=${_p%/environ}
    er_pstat "$_p" || continue
    for _w in $_v; do ER_MARK="$ER_MARK $_p:$P_START:${_w#EAGLETUI_RUN=}"; done
  done
}

er_load() { # dir -> R_*: the identity record of a run
  R_PID='' R_START='' R_BOOT='' R_NS='' R_SUP='' R_SUPSTART='' R_AT=''
  { read -r R_PID R_START R_BOOT R_NS R_SUP R_SUPSTART R_AT _ < "$1/pid"; } 2>/dev/null || R_PID=
  [ -n "$R_PID" ] && [ "$R_BOOT" = "$ER_BOOT" ] && [ "$R_NS" = "$ER_NS" ]
}

er_members() { # id -> M: live processes of the run " pid:start", by session, group, descent or mark. After er_load.
  M=
  [ -n "$ER_SNAP" ] || er_scan
  # The kernel does not use a number again while a task has it as session or group. So session R_PID is the run's
  # where its leader is ours or gone, and is not where another process has that number now.
  _own=
  if [ -n "$R_PID" ] && [ "$R_START" != 0 ]; then
    if er_pstat "$R_PID"; then [ "$P_START" = "$R_START" ] && _own=1; else _own=1; fi
  fi
  case "$ER_MARK " in
    *":$1 "*) ;;
    *) [ -n "$_own" ] || return 0
      case "$ER_SNAP " in *":$R_PID "*|*":$R_PID:"*|*" $R_PID:"*) ;; *) return 0 ;; esac ;;
  esac
  _id=$1
  _all=
  for _e in $ER_SNAP; do
    IFS=:
    # shellcheck disable=SC2086
    set -- $_e
    IFS=$ER_IFS
    [ "$1:$2" = "$R_SUP:$R_SUPSTART" ] || [ "$1" = "$$" ] && continue
    if [ -n "$_own" ] && { [ "$5" = "$R_PID" ] || [ "$4" = "$R_PID" ] || [ "$1:$2" = "$R_PID:$R_START" ]; }; then
      M="$M $1:$2"
    else
      case "$ER_MARK " in *" $1:$2:$_id "*) M="$M $1:$2" ;; *) _all="$_all $3:$1:$2" ;; esac
    fi
  done
  _more=1
  while [ -n "$_more" ]; do
    _more=
    _rest=
    for _e in $_all; do
      case " $M " in *" ${_e%%:*}:"*) M="$M ${_e#*:}" _more=1 ;; *) _rest="$_rest $_e" ;; esac
    done
    _all=$_rest
  done
}

er_signal() { # name : to each of M, looked at again right before
  for _e in $M; do
    er_alive "${_e%%:*}" "${_e##*:}" && kill -s "$1" "${_e%%:*}" 2>/dev/null
  done
  return 0
}

er_meta() { # dir -> K_*: what the run is
  K_VERSION='' K_KIND='' K_PORT='' K_GPUS='' K_PROFILE=''
  { read -r K_VERSION K_KIND K_PORT K_GPUS K_PROFILE < "$1/meta"; } 2>/dev/null || :
}

er_inspect() { # dir id -> S_ST S_RC S_END S_WHY S_SUP, and in M what outlived the main process
  S_ST='' S_RC='' S_END='' S_WHY='' S_SUP='' M=''
  _here=
  er_load "$1" && _here=1
  if er_exit "$1"; then
    S_ST=exited
    [ -n "$_here" ] && er_left "$2"
    return 0
  fi
  if [ ! -d "$1/claim" ]; then S_ST=staged; return 0; fi
  if [ -z "$R_PID" ]; then
    _b='' _n='' _sp='' _ss=''
    { read -r _b _n _sp _ss _ < "$1/claim/who"; } 2>/dev/null || :
    S_ST=starting
    if [ -z "$_b" ]; then
      # Claimed and not signed: its supervisor is at it right now, or was killed between the two.
      [ -n "$(find "$1/claim" -prune -mmin +1 2>/dev/null)" ] || return 0
    elif [ "$_b" = "$ER_BOOT" ] && [ "$_n" = "$ER_NS" ]; then
      er_alive "$_sp" "$_ss" && return 0
      er_load "$1" && { er_inspect "$1" "$2"; return; }
    fi
    S_ST=lost S_WHY=died-before-start
    return 0
  fi
  if [ "$R_BOOT" != "$ER_BOOT" ]; then S_ST=lost S_WHY=rebooted; return 0; fi
  if [ "$R_NS" != "$ER_NS" ]; then S_ST=unknown S_WHY=other-pid-namespace; return 0; fi
  er_alive "$R_SUP" "$R_SUPSTART" && S_SUP=1
  if er_alive "$R_PID" "$R_START"; then S_ST=running; return 0; fi
  if [ -n "$S_SUP" ] && er_alive "$R_SUP" "$R_SUPSTART"; then S_ST=finishing; return 0; fi
  S_SUP=
  if er_exit "$1"; then S_ST=exited; else S_ST=lost S_WHY=supervisor-killed; fi
  er_left "$2"
}

er_exit() { # dir -> S_RC S_END
  { read -r S_RC S_END _ < "$1/exit"; } 2>/dev/null && [ -n "$S_RC" ]
}

er_left() { # id -> M without what has ended since the look at the process table
  er_members "$1"
  _m=$M
  M=
  for _e in $_m; do er_alive "${_e%%:*}" "${_e##*:}" && M="$M $_e"; done
  return 0
}

er_state() { # dir id : one line
  er_inspect "$1" "$2"
  er_meta "$1"
  _stop=
  { IFS= read -r _stop < "$1/stop"; } 2>/dev/null || :
  printf 'run\tid=%s\tst=%s\twhy=%s\tpid=%s\tstart=%s\tsup=%s\tat=%s\trc=%s\tend=%s\tleft=%s\tstop=%s\tkind=%s\tport=%s\tgpus=%s\tprofile=%s\tdir=%s\n' \
    "$2" "$S_ST" "$S_WHY" "$R_PID" "$R_START" "$S_SUP" "$R_AT" "$S_RC" "$S_END" "${M# }" "$_stop" \
    "$K_KIND" "${K_PORT#-}" "${K_GPUS#-}" "$K_PROFILE" "$1"
}

er_each() { # function : called with directory and id of every run
  IFS=$ER_NL
  for _root in $ER_ROOTS; do
    IFS=$ER_IFS
    er_own_dir "$_root/$ER_HOSTID/runs" || continue
    set +f
    set -- "$1" "$_root/$ER_HOSTID/runs"/*
    set -f
    _do=$1
    shift
    for _dir; do
      er_own_dir "$_dir" && er_valid "${_dir##*/}" && "$_do" "$_dir" "${_dir##*/}"
    done
    set -- "$_do"
  done
  IFS=$ER_IFS
}

er_command() { # dir id : cmd.json as it is, closed by a line with a dot
  [ -f "$1/cmd.json" ] || return 0
  printf 'cmd\t%s\n' "$2"
  cat "$1/cmd.json"
  printf '\n.\n'
}

# A lock is a chain of symbolic links NAME.1, NAME.2, ... and only the highest number counts. Making a link is atomic
# and carries its text ("free", or who holds it), so there is no lock without a holder's name. Taking it is making the
# next number, which only one can; giving it back is making one more that says "free". Nobody ever removes the
# highest, so a slow breaker of a dead holder's lock cannot take it from a live one.

er_lock_top() { # lock -> L_N L_BY
  L_N=0 L_BY=free
  set +f
  for _f in "$1".*; do
    _g=${_f##*.}
    case $_g in ''|*[!0-9]*) continue ;; esac
    [ "$_g" -gt "$L_N" ] && L_N=$_g
  done
  set -f
  [ "$L_N" = 0 ] || L_BY=$(readlink "$1.$L_N" 2>/dev/null) || L_BY=gone
}

er_lock_free() { # L_BY -> true where nobody alive holds it; L_WHO
  L_WHO=
  [ "$L_BY" = free ] && return 0
  [ "$L_BY" = gone ] && return 1 # replaced while we looked
  IFS=/
  # shellcheck disable=SC2086
  set -- $L_BY
  IFS=$ER_IFS
  [ $# -ge 5 ] || return 0
  L_WHO=${6-}
  [ "$1" = "$ER_BOOT" ] || return 0
  if [ "$2" = "$ER_NS" ]; then ! er_alive "$3" "$4"; else [ $(($(er_now) - $5)) -gt 120 ]; fi
}

er_lock() { # lock who tries -> true where it is ours now, until er_unlock or the end of this shell
  er_pstat "$$" || return 1
  _text=$ER_BOOT/$ER_NS/$$/$P_START/$(er_now)/$2
  _try=0
  while :; do
    er_lock_top "$1"
    if er_lock_free; then
      _mine=$((L_N + 1))
      if ln -s "$_text" "$1.$_mine" 2>/dev/null; then
        er_lock_top "$1"
        if [ "$L_N" = "$_mine" ]; then
          er_lock_clean "$1" "$_mine"
          return 0
        fi
        rm -f "$1.$_mine" # we were slow: others have taken it and given it back since
      else
        [ -d "${1%/*}" ] || mkdir "${1%/*}" 2>/dev/null # a launch that was refused took its directory away
      fi
    fi
    _try=$((_try + 1))
    [ $_try -ge "$3" ] && return 1
    er_nap
  done
}

er_lock_clean() { # lock number : removes the links below
  set +f
  for _f in "$1".*; do
    _g=${_f##*.}
    case $_g in ''|*[!0-9]*) continue ;; esac
    [ "$_g" -lt "$2" ] && rm -f "$_f"
  done
  set -f
}

er_unlock() { # lock
  er_lock_top "$1"
  ln -s free "$1.$((L_N + 1))" 2>/dev/null && er_lock_clean "$1" $((L_N + 1))
  return 0
}

er_listening() { # port : somebody listens on it, by /proc alone
  grep -qi ":$(printf %04X "$1") [0-9A-F]*:0000 0A" /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

er_overlap() { # gpus gpus : comma-separated lists with a common member
  case $1:$2 in -:*|*:-|:*|*:) return 1 ;; esac
  IFS=,
  for _g in $1; do
    case ",$2," in *",$_g,"*) IFS=$ER_IFS; return 0 ;; esac
  done
  IFS=$ER_IFS
  return 1
}

er_conflict() { # dir id : a live run that has the port or one of the GPUs of the run to be launched -> C_ID
  [ -z "$C_ID" ] && [ "$2" != "$N_ID" ] || return 0
  er_meta "$1"
  C_WHAT=
  if er_overlap "$N_GPUS" "$K_GPUS"; then C_WHAT=gpus; elif [ "$N_PORT" != - ] && [ "$N_PORT" = "$K_PORT" ]; then C_WHAT=port; fi
  [ -n "$C_WHAT" ] || return 0
  er_inspect "$1" "$2"
  case $S_ST in
    starting|running|finishing) C_ID=$2 ;;
    exited|lost) [ -z "$M" ] || C_ID=$2 ;;
  esac
  [ -n "$C_ID" ] || return 0
  { read -r _st _ _ _ _w _ < "$1/stop"; } 2>/dev/null || _st='' _w=''
  C_LINE="busy${ER_TAB}what=$C_WHAT${ER_TAB}run=$2${ER_TAB}gpus=${K_GPUS#-}${ER_TAB}port=${K_PORT#-}${ER_TAB}stop=$_st${ER_TAB}by=$_w"
}

er_launch() { # id kind port gpus who profile; ER_SPEC ER_SECRET ER_ARGS ER_CMD ER_FILES ER_FILE_1... Repeat it as you like: one start an id.
  N_ID=$1 N_KIND=$2 N_PORT=$3 N_GPUS=$4 N_WHO=$5 N_PROFILE=$6
  if er_find "$N_ID" && [ -d "$D/claim" ]; then
    er_state "$D" "$N_ID"
    er_command "$D" "$N_ID"
    return
  fi
  er_new_root
  [ -n "$D" ] || D=$ER_ROOT/runs/$N_ID
  mkdir "$D" 2>/dev/null
  er_own_dir "$D" || er_die write-failed "$D"
  C_LINE=
  # Always in this order, so that no two wait for each other. What comes next is one step for everybody else.
  _locks="$D/launch"
  IFS=,
  for _g in ${N_GPUS#-}; do _locks="$_locks$ER_NL$ER_ROOT/locks/gpu-$_g"; done
  [ "$N_PORT" = - ] || _locks="$_locks$ER_NL$ER_ROOT/locks/port-$N_PORT"
  IFS=$ER_NL
  _held=
  for _l in $_locks; do
    IFS=$ER_IFS
    if er_lock "$_l" "$N_WHO" 60; then
      _held="$_l$ER_NL$_held"
    else
      C_LINE="busy${ER_TAB}what=lock${ER_TAB}name=${_l##*/}${ER_TAB}by=$L_WHO"
      break
    fi
  done
  IFS=$ER_IFS
  if [ -z "$C_LINE" ] && [ ! -d "$D/claim" ]; then
    C_ID=
    ER_SNAP=
    er_each er_conflict
    if [ -z "$C_LINE" ] && [ "$N_PORT" != - ] && er_listening "$N_PORT"; then C_LINE="busy${ER_TAB}what=listener${ER_TAB}port=$N_PORT"; fi
    if [ -z "$C_LINE" ]; then er_start; fi
  fi
  _text=$C_LINE
  [ -n "$_text" ] || _text=$(er_state "$D" "$N_ID")
  # Refused, or not written: nothing of it stays.
  [ -z "$C_LINE" ] || [ -z "$_held" ] || [ -d "$D/claim" ] || rm -rf "$D"
  IFS=$ER_NL
  for _l in $_held; do er_unlock "$_l"; done
  IFS=$ER_IFS
  printf '%s\n' "$_text"
  [ -n "$C_LINE" ] || er_command "$D" "$N_ID"
}

er_start() { # writes the files and starts the supervisor; C_LINE where it could not
  if er_put "$D/meta" "1 $N_KIND $N_PORT $N_GPUS $N_PROFILE" && er_put "$D/cmd.json" "$ER_CMD" && er_put "$D/spec" "$ER_SPEC" &&
    { [ -z "$ER_SECRET" ] || er_put "$D/secret" "$ER_SECRET"; } &&
    { [ -z "$ER_ARGS" ] || er_put "$D/secret.yaml" "$ER_ARGS"; } && er_files && ( : >> "$D/log" ) 2>/dev/null; then
    er_detach sup "$D" "$N_ID"
    _i=0
    while [ ! -s "$D/pid" ] && [ ! -f "$D/failed" ] && [ $_i -lt 50 ]; do
      er_nap
      _i=$((_i + 1))
    done
    [ -f "$D/failed" ] || return 0
  fi
  rm -f "$D/secret" "$D/secret.yaml"
  C_LINE="error${ER_TAB}write-failed${ER_TAB}$D"
}

er_files() { # ER_FILES: names; ER_FILE_1, ER_FILE_2, ...: their bytes, which are written as they are
  _i=0
  for _f in $ER_FILES; do
    _i=$((_i + 1))
    eval "( printf %s \"\$ER_FILE_$_i\" > \"\$D/\$_f\" )" 2>/dev/null || return 1
  done
}

er_detach() { # args... : this program in a session of its own, through a pipe: that works on a full disk too
  printf '%s\ner_main "$@"\n' "$ER_SELF" | (
    umask "$ER_UMASK"
    if [ -n "$ER_LCSET" ]; then LC_ALL=$ER_LC; else unset LC_ALL; fi
    if command -v setsid >/dev/null 2>&1; then exec setsid "${ER_SH:-/bin/sh}" -s -- "$@"; fi
    trap '' HUP
    exec "${ER_SH:-/bin/sh}" -s -- "$@"
  ) >/dev/null 2>&1 &
}

er_sup() { # dir id : the supervisor. Making the directory "claim" is what only one can, so there is one start a run
  D=$1
  cd /
  mkdir "$D/claim" 2>/dev/null || exit 0
  trap '' HUP INT QUIT TERM
  er_pstat "$$" || exit 1
  _ss=$P_START
  er_put "$D/claim/who" "$ER_BOOT $ER_NS $$ $_ss"
  _at=$(er_now)
  ( er_child "$D" "$2" ) >> "$D/log" 2>&1 < /dev/null &
  _c=$!
  P_START=0
  er_pstat "$_c"
  _cs=$P_START
  if ! er_put "$D/pid" "$_c $_cs $ER_BOOT $ER_NS $$ $_ss $_at"; then
    kill -s KILL "$_c" # never a process without a record
    : > "$D/failed"
    rm -rf "$D/claim"
    exit 1
  fi
  er_prune "${D%/runs/*}"
  wait "$_c"
  _rc=$?
  while [ "$_rc" -gt 128 ] && er_alive "$_c" "$_cs"; do
    wait "$_c"
    _rc=$?
  done
  rm -f "$D/secret" "$D/secret.yaml"
  until er_put "$D/exit" "$_rc $(er_now)"; do sleep 5; done
}

er_child() { # dir id : becomes the run's main process
  ER_DIR=$1 ER_CWD=
  trap - HUP INT QUIT TERM
  if [ -n "$ER_LCSET" ]; then LC_ALL=$ER_LC; else unset LC_ALL; fi
  umask "$ER_UMASK"
  # setproctitle() (SGLang and vLLM use it) overwrites what /proc/PID/environ shows, unless SPT_NOENV is set.
  EAGLETUI_RUN=$2 SPT_NOENV=1
  export EAGLETUI_RUN SPT_NOENV
  _home=${HOME:-/}
  if [ -f "$ER_DIR/secret" ]; then
    . "$ER_DIR/secret"
    rm -f "$ER_DIR/secret"
  fi
  . "$ER_DIR/spec" # set -- argv; ER_CWD; exports
  cd -- "${ER_CWD:-$_home}" 2>/dev/null || {
    _why='no such directory'
    [ -d "${ER_CWD:-$_home}" ] && _why='permission denied'
    printf 'eagletui: cannot change to %s: %s\n' "${ER_CWD:-$_home}" "$_why"
    exit 72
  }
  case $1 in
    */*)
      if [ ! -e "$1" ]; then
        printf 'eagletui: %s: no such file\n' "$1"
        exit 127
      elif [ ! -f "$1" ] || [ ! -x "$1" ]; then
        printf 'eagletui: %s: not executable\n' "$1"
        exit 126
      fi ;;
    *)
      command -v -- "$1" >/dev/null 2>&1 || {
        printf 'eagletui: %s: command not found in %s\n' "$1" "${PATH-}"
        exit 127
      } ;;
  esac
  set +f
  if command -v setsid >/dev/null 2>&1; then exec setsid "$@"; else exec "$@"; fi
}

er_prune() { # root : of the runs that are over, the newest 200 stay
  ls -1t "$1/runs" 2>/dev/null | {
    _k=0
    while IFS= read -r _x; do
      _k=$((_k + 1))
      [ $_k -gt 200 ] && er_valid "$_x" || continue
      er_inspect "$1/runs/$_x" "$_x"
      case $S_ST in exited|lost) ;; *) continue ;; esac
      er_lock_top "$1/runs/$_x/stopper"
      [ -z "$M" ] && er_lock_free && rm -rf "$1/runs/$_x"
    done
  }
}

er_stop() { # id grace who : the stop goes on by itself, a lost link leaves nothing half done
  er_find "$1" || { printf 'absent\t%s\n' "$1"; return; }
  er_inspect "$D" "$1"
  [ "$S_ST" != unknown ] || er_die other-namespace "$1"
  er_lock_top "$D/stopper"
  if ! er_lock_free; then
    er_put "$D/stop.grace" "$2" # under way already; a shorter patience is heard
  elif [ "$S_ST" = exited ] || [ "$S_ST" = lost ] && [ -z "$M" ]; then
    # Over, and nothing of it is left. A stop that was cut off (killed, full disk) is closed here.
    rm -f "$D/secret" "$D/secret.yaml"
    if read -r _st _t _q _m _w _ < "$D/stop" && [ "$_st" != 'done' ]; then er_put "$D/stop" "done $_t $_q $_m $_w"; fi 2>/dev/null
  else
    _q=$(er_now)
    _m=1
    case $S_ST in exited|lost) _m=0 ;; esac
    # Asked again after a stop that was cut off: who asked first, and what for, stays.
    { read -r _st _ _pq _pm _ < "$D/stop"; } 2>/dev/null && [ "$_st" != 'done' ] && _q=$_pq _m=$_pm
    er_put "$D/stop" "requested $_q $_q $_m $3"
    er_detach stopper "$D" "$1" "$2" "$_q $_m $3"
  fi
  er_state "$D" "$1"
}

er_step() { # word pids... : how far the stop has come
  _w=$1
  shift
  er_put "$D/stop" "$_w $(er_now) $Q_TEXT${*:+ $*}"
}

er_stopper() { # dir id grace "requested main who"
  trap '' HUP INT QUIT TERM
  D=$1 Q_ID=$2 Q_GRACE=$3 Q_TEXT=$4
  cd /
  rm -f "$D/stop.grace"
  er_lock "$D/stopper" "${4##* }" 1 || exit 0
  if mkdir "$D/claim" 2>/dev/null; then # staged and never started: now it never will be
    er_put "$D/claim/who" "$ER_BOOT $ER_NS 0 0"
    er_put "$D/exit" "143 $(er_now)"
  fi
  _i=0
  er_load "$D"
  while [ -z "$R_PID" ] && [ ! -f "$D/exit" ] && [ $_i -lt 25 ]; do
    er_nap
    _i=$((_i + 1))
    er_load "$D"
  done
  er_load "$D" || R_PID='' R_START=0
  er_step term
  er_up
  _end=$((UP + Q_GRACE))
  # SGLang drains when its main process alone is asked; a signal to all looks like a crash to it.
  [ -n "$R_PID" ] && er_alive "$R_PID" "$R_START" && kill -s TERM "$R_PID" 2>/dev/null
  while [ -n "$R_PID" ] && er_alive "$R_PID" "$R_START"; do
    if { read -r _g < "$D/stop.grace"; } 2>/dev/null; then
      rm -f "$D/stop.grace"
      er_up
      [ $((UP + _g)) -lt $_end ] && _end=$((UP + _g))
    fi
    er_up
    [ "$UP" -lt $_end ] || break
    er_nap
  done
  er_wait_gone 5
  if [ -n "$M" ]; then
    er_step term-all
    er_signal TERM
    er_wait_gone 12
  fi
  _i=0
  while [ -n "$M" ] && [ $_i -lt 40 ]; do
    [ $_i = 0 ] && er_step 'kill'
    er_signal KILL
    er_wait_gone 1
    _i=$((_i + 1))
  done
  if [ -n "$M" ]; then
    # shellcheck disable=SC2086
    er_step stuck $M
  else
    # The supervisor writes the exit code; whoever reads "done" finds it there.
    _i=0
    while [ ! -f "$D/exit" ] && [ -n "$R_SUP" ] && er_alive "$R_SUP" "$R_SUPSTART" && [ $_i -lt 25 ]; do
      er_nap
      _i=$((_i + 1))
    done
    rm -f "$D/secret" "$D/secret.yaml" "$D/stop.grace"
    er_step 'done'
  fi
  er_unlock "$D/stopper"
}

er_wait_gone() { # naps : waits for the members to end -> M: those that have not
  _n=0
  while :; do
    er_scan
    er_members "$Q_ID"
    [ -n "$M" ] && [ $_n -lt "$1" ] || return 0
    er_nap
    _n=$((_n + 1))
  done
}

er_user() { # uid -> U
  U=
  while IFS=: read -r _un _ _ui _; do
    [ "$_ui" = "$1" ] && { U=$_un; return 0; }
  done < /etc/passwd
  U=$(getent passwd "$1" 2>/dev/null) && U=${U%%:*}
  [ -n "$U" ] || U=$1
}

er_process() { # pid : facts of one process
  IFS=$ER_IFS
  er_pstat "$1" || return 0
  # shellcheck disable=SC2012
  _u=$(ls -ld "/proc/$1" 2>/dev/null) || return 0
  # shellcheck disable=SC2086
  set -- "$1" $_u
  printf 'proc\t%s\t%s\t%s\t%s\t%s\t%s\t' "$1" "$P_START" "$P_PPID" "$P_PGRP" "$P_SID" "$4"
  { tr '\0\n\t' '\001\002\002' < "/proc/$1/cmdline"; } 2>/dev/null
  printf '\n'
  _o=$(readlink "/proc/$1/fd/1" 2>/dev/null) && [ -f "/proc/$1/fd/1" ] && [ -r "$_o" ] && printf 'out\t%s\t%s\n' "$1" "$_o"
  return 0
}

er_sockets() { # pids... : their sockets
  set +f
  _fds=
  for _p; do _fds="$_fds /proc/$_p/fd"; done
  set -f
  # shellcheck disable=SC2086,SC2012
  ls -l $_fds /dev/null 2>/dev/null | grep -E '^/proc/[0-9]+/fd:$|socket:\[' | while IFS= read -r _line; do
    case $_line in
      /proc/*) _p=${_line#/proc/} _p=${_p%/fd:} ;;
      *) _n=${_line##*socket:\[}; printf 'sock\t%s\t%s\n' "$_p" "${_n%\]}" ;;
    esac
  done
}

er_listeners() { # [port] : listening sockets as the kernel shows them
  _hex='[0-9A-F]*'
  [ -z "${1-}" ] || _hex=$(printf %04X "$1")
  grep -hi ":$_hex [0-9A-F]*:0000 0A" /proc/net/tcp /proc/net/tcp6 2>/dev/null | while read -r _ _a _ _ _ _ _ _u _ _n _; do
    printf 'listen\t%s\t%s\t%s\n' "$_a" "$_u" "$_n"
  done
}

er_record() { # dir id : identity of a run whose processes may live
  er_load "$1" || return 0
  case "$ER_SNAP " in *":$R_PID "*|*":$R_PID:"*|*" $R_PID:"*) ;; *) case "$ER_MARK " in *":$2 "*) ;; *) return 0 ;; esac ;; esac
  er_members "$2"
  [ -z "$M" ] || printf 'ours\t%s\t%s\n' "$2" "${M# }"
}

er_port() { # port [id] : who listens there, and whether it is a process of that run
  _rows=$(er_listeners "$1")
  [ -n "$_rows" ] || return 0
  printf '%s\n' "$_rows"
  printf 'me\t%s\n' "$ER_UID"
  er_scan
  M=
  if [ -n "${2-}" ] && er_find "$2" && er_load "$D"; then er_members "$2"; fi
  printf 'ours\t%s\t%s\n' "${2:--}" "${M# }"
  _mine=
  for _e in $M; do _mine="$_mine ${_e%%:*}"; done
  # shellcheck disable=SC2086
  _socks=$([ -z "$_mine" ] || er_sockets $_mine)
  _all=
  _left=
  IFS=$ER_NL
  for _row in $_rows; do
    case "$_socks$ER_NL" in *"$ER_TAB${_row##*"$ER_TAB"}$ER_NL"*) ;; *) _left=1 ;; esac
  done
  IFS=$ER_IFS
  if [ -n "$_left" ]; then
    for _e in $ER_SNAP; do _all="$_all ${_e%%:*}"; done
    # shellcheck disable=SC2086
    _socks=$(er_sockets $_all)
  fi
  _seen=
  IFS=$ER_NL
  for _s in $_socks; do
    for _row in $_rows; do
      [ "${_row##*"$ER_TAB"}" = "${_s##*"$ER_TAB"}" ] || continue
      printf '%s\n' "$_s"
      _p=${_s#*"$ER_TAB"}
      _p=${_p%%"$ER_TAB"*}
      case "$_seen " in *" $_p "*) ;; *) _seen="$_seen $_p"; er_process "$_p" ;; esac
      IFS=$ER_NL
    done
  done
  for _row in $_rows; do
    _u=${_row%"$ER_TAB"*}
    er_user "${_u##*"$ER_TAB"}"
    printf 'user\t%s\t%s\n' "${_u##*"$ER_TAB"}" "$U"
  done
  IFS=$ER_IFS
  [ -z "$_seen" ] || er_each er_record
}

er_foreign() { # processes that look like a server of SGLang or vLLM, with their ancestors and sockets
  er_scan
  _cl=
  for _e in $ER_SNAP; do _cl="$_cl /proc/${_e%%:*}/cmdline"; done
  if printf 'a\0b=\0' | grep -qF b= 2>/dev/null; then
    # shellcheck disable=SC2086
    _cl=$(grep -lE 'sglang|vllm|VLLM' $_cl 2>/dev/null)
  else
    _hits=
    for _f in $_cl; do tr '\0' ' ' < "$_f" 2>/dev/null | grep -qE 'sglang|vllm|VLLM' && _hits="$_hits $_f"; done 2>/dev/null
    _cl=$_hits
  fi
  [ -n "$_cl" ] || return 0
  _pids=
  for _f in $_cl; do
    _p=${_f#/proc/}
    _pids="$_pids ${_p%/cmdline}"
  done
  printf 'me\t%s\n' "$ER_UID"
  _b=$(grep '^btime ' /proc/stat 2>/dev/null)
  printf 'clock\t%s\t%s\n' "${_b#btime }" "$(getconf CLK_TCK 2>/dev/null || echo 100)"
  _told=
  for _p in $_pids; do
    case "$_told " in *" $_p "*) continue ;; esac
    _told="$_told $_p"
    er_process "$_p"
  done
  # The way up from each one, so that a launcher and its ranks are one server.
  for _p in $_pids; do
    while er_pstat "$_p" && [ "$P_PPID" -gt 1 ]; do
      case "$_told " in *" >$_p "*) break ;; esac
      _told="$_told >$_p"
      printf 'up\t%s\t%s\n' "$_p" "$P_PPID"
      _p=$P_PPID
    done
  done
  er_listeners
  # shellcheck disable=SC2086
  er_sockets $_pids
  er_each er_record
}

er_main() { # command args...
  er_init
  _cmd=$1
  shift
  case $_cmd in
    launch) er_launch "$@" ;;
    sup) er_sup "$@" ;;
    stop) er_stop "$@" ;;
    stopper) er_stopper "$@" ;;
    status) for _id; do if er_find "$_id"; then er_state "$D" "$_id"; else printf 'absent\t%s\n' "$_id"; fi; done ;;
    list) er_each er_state ;;
    commands) for _id; do er_find "$_id" && er_command "$D" "$_id"; done ;;
    all) er_each er_state; er_each er_command ;;
    port) er_port "$@" ;;
    foreign) er_foreign ;;
    *) er_die usage "$_cmd" ;;
  esac
  printf 'end\n'
}
