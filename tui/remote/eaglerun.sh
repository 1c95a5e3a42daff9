#!/bin/sh
# eaglerun: starts, watches and stops runs on a host. POSIX sh, /proc, and
# cat chmod date grep id ln ls mkdir mv printf readlink rm sed sleep tr (setsid and find where there are any; dd, tail and wc
# for containers).
# It is sent on the standard input of "/bin/sh -s"; tui/core/host/runs.py sends it and reads its answers, docs/runs.md
# describes the files. Answers are lines of tab-separated fields, the first one names the kind of line.
# Only functions here: what runs is the one call that the sender puts behind them.
# The sender drops comment lines and indentation, so no text over several lines may begin a line with a blank or '#'.

ER_NL='
'

er_init() {
  set -u
  set -f
  # Exported by the login, our own variables would reach the server with our values. What it exported is in ER_LOGIN.
  unset _d _flags _life _period _py _pythons _was
  unset C_ID C_LINE C_WHAT D K_GPUS K_KIND K_PORT K_PROFILE K_VERSION L_BY L_N L_WHO M N_FOR N_GPUS N_ID
  unset N_KIND N_PORT N_PROFILE N_WHO P_PGRP P_PPID P_SID P_START P_STATE Q_GRACE Q_ID Q_TEXT R_AT R_BOOT
  unset R_CID R_NS R_PID R_START R_SUP R_SUPSTART S_END S_RC S_ST S_SUP S_WHY U UP _a _at _b _by _c _cgs _cl
  unset E_AT E_BOOT E_GPUS E_HOST E_ID E_NS E_PID E_PIDS E_SINCE E_STATE E_UID E_UP E_WHO E_WORDS N_KEYS N_LEASE N_PID N_UID N_USES
  unset _gone _kept _name _run _since _took _wait
  unset _none _cmd _cs _dir _do _e _end _f _fds _from _g _have _held _here _hex _home _i _id _in _k _l _left _line
  unset _locks _m _mine _n _named _naming _new _nf _o _own _p _pids _pm _pq _q _r _rc _rest _root _row _rows
  unset _s _seen _slug _socks _sp _ss _st _stop _t _text _told _try _u _ui _un _v _w _why _x
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
  # One shell runs call after call, each in a process of its own: that one is who holds a lock, not $$.
  { read -r ER_ME _ < /proc/self/stat; } 2>/dev/null || er_die no-proc
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
  # Where leases are: all users of the host see those, unless the state has a place of its own.
  ER_PUBLIC=${EAGLETUI_LEASES-}
  [ -n "$ER_PUBLIC" ] || if [ -n "${EAGLETUI_STATE-}${EAGLETUI_HOME-}" ]; then ER_PUBLIC=$ER_ROOTS; else ER_PUBLIC=/var/tmp$ER_NL/tmp; fi
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
    # A name of our own: BusyBox' `rm -f` fails where another launch has just removed the file.
    er_put "$ER_ROOT/.try$ER_ME" try && rm -f "$ER_ROOT/.try$ER_ME" && return
  done
  IFS=$ER_IFS
  er_die no-state-dir "$(printf %s "$ER_ROOTS" | tr '\n' ' ')"
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

# Of the process table, as lines of /proc/PID/stat: " pid:start:ppid:pgrp:sid" of each live process. The name may hold anything up to 15
# bytes, newlines too, so a line without its end is joined with the next.
ER_STAT=':a
/^[0-9]* (/!d
s/^\([0-9]*\) (.*) [^ZXx] \([0-9]*\) \([0-9]*\) \([0-9]*\) \(-\{0,1\}[0-9]* \)\{15\}\([0-9]*\) .*/ \1:\6:\2:\3:\4/p
t
/) [ZXx] [0-9]* [0-9]* [0-9]* \(-\{0,1\}[0-9]* \)\{15\}[0-9]* /d
$!{
N
ba
}'

# The same with the marks, where there is a Python: a third of the time. Indented by tabs, which the sender leaves.
ER_SCANNER='
import os
def read(name):
	try:
		with open(f"/proc/{pid}/{name}", "rb", 0) as file:
			return file.read()
	except OSError:
		return b""
snap, marks, me = "", "", os.geteuid()
for pid in filter(str.isdigit, os.listdir("/proc")):
	f = read("stat").rpartition(b") ")[2].decode().split()
	if len(f) < 20 or f[0] in "ZXx":
		continue
	snap += f" {pid}:{f[19]}:{f[1]}:{f[2]}:{f[3]}"
	environ = read("environ")
	if b"EAGLETUI_RUN=" in environ and os.stat(f"/proc/{pid}").st_uid == me:
		for word in environ.split(b"\0"):
			if word.startswith(b"EAGLETUI_RUN="):
				marks += f" {pid}:{f[19]}:" + word[13:].decode("utf-8", "replace").replace("\n", "\1")
print(snap, marks, sep="\n")
'

er_scan() { # ER_SNAP: every live process " pid:start:ppid:pgrp:sid"; ER_MARK: those with our mark " pid:start:run"
  _e=${ER_PYTHON-/usr/bin/python3}
  if [ -x "$_e" ] && _e=$("$_e" -I -S -c "$ER_SCANNER" 2>/dev/null); then
    ER_SNAP=${_e%%"$ER_NL"*} ER_MARK=${_e#"$ER_SNAP"}
    ER_MARK=${ER_MARK#"$ER_NL"}
    return
  fi
  ER_MARK=
  set +f
  ER_SNAP=$(cat /proc/[0-9]*/stat 2>/dev/null | sed -n "$ER_STAT" | tr -d '\n')
  er_naming EAGLETUI_RUN= /proc/[0-9]*/environ
  set -f
  for _e in $_named; do
    _p=${_e#/proc/}
    _p=${_p%/environ}
    [ -O "/proc/$_p" ] || continue
    _v=$(tr '\n\0' '\001\n' < "$_e" 2>/dev/null | grep '^EAGLETUI_RUN=') || continue
    er_pstat "$_p" || continue
    for _w in $_v; do ER_MARK="$ER_MARK $_p:$P_START:${_w#EAGLETUI_RUN=}"; done
  done
}

er_naming() { # pattern files... -> _named: those of them that hold it; their strings end with NULs
  _naming=$1
  shift
  if printf 'a\0b=\0' | grep -qzF b= 2>/dev/null; then
    _named=$(grep -lzE "$_naming" "$@" 2>/dev/null)
    return 0
  fi
  _named= # this grep stops at a NUL, so each file is looked at
  for _nf; do tr '\0' '\n' < "$_nf" 2>/dev/null | grep -qE "$_naming" && _named="$_named $_nf"; done 2>/dev/null
  return 0
}

er_load() { # dir -> R_*: the identity record of a run; R_CID: the id of its container where it has one
  R_CID=
  [ ! -f "$1/cid" ] || { read -r R_CID < "$1/cid"; } 2>/dev/null || :
  R_PID='' R_START='' R_BOOT='' R_NS='' R_SUP='' R_SUPSTART='' R_AT=''
  { read -r R_PID R_START R_BOOT R_NS R_SUP R_SUPSTART R_AT _ < "$1/pid"; } 2>/dev/null || R_PID=
  [ -n "$R_PID" ] && [ "$R_BOOT" = "$ER_BOOT" ] && [ "$R_NS" = "$ER_NS" ]
}

er_members() { # id -> M: live processes of the run " pid:start", by session, group, descent or mark. After er_load.
  M=
  [ -n "$ER_SNAP" ] || er_scan
  er_inside
  # The kernel does not use a number again while a task has it as session or group. So session R_PID is the run's
  # where its leader is ours or gone, and is not where another process has that number now.
  _own=
  if [ -n "$R_PID" ] && [ "$R_START" != 0 ]; then
    if er_pstat "$R_PID"; then [ "$P_START" = "$R_START" ] && _own=1; else _own=1; fi
  fi
  case "$ER_MARK " in
    *":$1 "*) ;;
    *) [ -n "$_own$_in" ] || return 0
      case "$ER_SNAP$_in " in *":$R_PID "*|*":$R_PID:"*|*" $R_PID:"*|*' in:'*) ;; *) return 0 ;; esac ;;
  esac
  # By session, group, mark and container first, then the children of those, and so on: one grep a generation.
  _by=
  [ -z "$_own" ] || _by="|^$R_PID:$R_START:|:$R_PID(:[0-9]+)?\$"
  for _e in $ER_MARK; do [ "${_e##*:}" != "$1" ] || _by="$_by|^${_e%:*}:"; done
  for _e in $_in; do _by="$_by|^${_e#in:}:"; done
  while [ -n "$_by" ]; do
    # shellcheck disable=SC2086
    _new=$(printf '%s\n' $ER_SNAP | grep -E "${_by#|}")
    _by=
    for _e in $_new; do
      _e=${_e%:*:*:*}
      case "$M $R_SUP:$R_SUPSTART $$:${_e#*:} $ER_ME:${_e#*:} " in *" $_e "*) continue ;; esac
      M="$M $_e"
      _by="$_by|${_e%%:*}"
    done
    [ -z "$_by" ] || _by="|^[0-9]+:[0-9]+:(${_by#|}):"
  done
  # Born since the snapshot: what replaces itself by a child is seen by its mark alone.
  for _e in $ER_MARK; do
    [ "${_e##*:}" = "$1" ] || continue
    case "$M $R_SUP:$R_SUPSTART $$:${_e#*:} $ER_ME:${_e#*:} " in *" ${_e%:*} "*|*" $_e "*) ;; *) M="$M ${_e%:*}" ;; esac
  done
}

er_inside() { # -> _in: processes of the container R_CID " in:pid", by their cgroup, which anybody may read
  _in=
  [ -n "$R_CID" ] || return 0
  set +f
  for _f in $(grep -lF "$R_CID" /proc/[0-9]*/cgroup 2>/dev/null); do
    _f=${_f#/proc/}
    _in="$_in in:${_f%/cgroup}"
  done
  set -f
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
    # A container ends with all that is in it, and is not looked for at each look.
    [ -n "$_here" ] && [ -z "$R_CID" ] && er_left "$2"
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
      [ -z "$R_CID" ] || er_taken_up "$1" || return 0
    fi
    S_ST=lost S_WHY=died-before-start
    return 0
  fi
  if [ "$R_BOOT" != "$ER_BOOT" ]; then
    # Its engine still has the container: it knows the exit code, and is being asked.
    if [ -z "$R_CID" ] || er_taken_up "$1"; then S_ST=lost S_WHY=rebooted; else S_ST=finishing S_WHY=rebooted; fi
    return 0
  fi
  if [ "$R_NS" != "$ER_NS" ]; then S_ST=unknown S_WHY=other-pid-namespace; return 0; fi
  er_alive "$R_SUP" "$R_SUPSTART" && S_SUP=1
  [ -z "$R_CID" ] || [ -n "$S_SUP" ] || er_taken_up "$1" || S_SUP=1
  if er_alive "$R_PID" "$R_START"; then S_ST=running; return 0; fi
  if [ -n "$S_SUP" ] && er_alive "$R_SUP" "$R_SUPSTART"; then S_ST=finishing; return 0; fi
  S_SUP=
  if er_exit "$1"; then
    S_ST=exited
  elif [ -f "$1/gone" ]; then
    S_ST=lost S_WHY=container-removed
    return 0
  elif [ -n "$R_CID" ]; then
    S_ST=finishing # the engine knows its exit code, and is being asked
    return 0
  else
    S_ST=lost S_WHY=supervisor-killed
  fi
  er_left "$2"
}

er_taken_up() { # dir : a container whose supervisor was killed gets another one. False where it has
  [ -f "$1/gone" ] && return 0
  er_lock_top "$1/keeper"
  if er_lock_free; then er_detach keep "$1"; fi
  return 1
}

er_exit() { # dir -> S_RC S_END
  { read -r S_RC S_END S_WHY < "$1/exit"; } 2>/dev/null && [ -n "$S_RC" ]
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
  printf 'run\tid=%s\tst=%s\twhy=%s\tpid=%s\tstart=%s\tsup=%s\tat=%s\trc=%s\tend=%s\tleft=%s\tstop=%s\tkind=%s\tport=%s\tgpus=%s\tprofile=%s\tcid=%s\tdir=%s\n' \
    "$2" "$S_ST" "$S_WHY" "$R_PID" "$R_START" "$S_SUP" "$R_AT" "$S_RC" "$S_END" "${M# }" "$_stop" \
    "$K_KIND" "${K_PORT#-}" "${K_GPUS#-}" "$K_PROFILE" "$R_CID" "$1"
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

er_lock() { # lock who tries -> true where it is ours now, until er_unlock or the end of this process
  er_pstat "$ER_ME" || return 1
  _text=$ER_BOOT/$ER_NS/$ER_ME/$P_START/$(er_now)/$2
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

# A group's members reserve on all their hosts before the first is started. A reservation is a staged run with the file
# "reserved": the boot and the second of /proc/uptime up to which it holds. So it goes by itself when its launcher is gone.

er_reserved() { # dir : this reservation holds
  _b='' _t=0
  { read -r _b _t _ < "$1/reserved"; } 2>/dev/null || return 1
  er_up
  [ "$_b" = "$ER_BOOT" ] && [ "$UP" -lt "${_t:-0}" ]
}

er_release() { # id... : gives back what was reserved and not started
  for _id; do
    er_find "$_id" && [ -f "$D/reserved" ] && er_drop "$D"
    printf 'released\t%s\n' "$_id"
  done
}

er_drop() { # dir : a reservation goes, unless it is being started right now
  er_lock "$1/launch" release 1 || return 0
  if [ -d "$1/claim" ]; then er_unlock "$1/launch"; else rm -rf "$1"; fi
}

# A lease: the right of an experiment to a set of GPUs, between its launches too, against all users of the host. It is the
# text of a symbolic link, which is made at once, replaced by rename, and read without opening anything: what another user puts
# there neither blocks a reader nor leads anywhere. Each user has a directory that others only read, PLACE/eagletui-leases-UID:
#   ID -> lease/STATE/BOOT/HOST/NS/UP/SINCE/AT/GPUS/WHO/PID/WORDS/PID:START,...
# UP is the second of /proc/uptime of its last renewal. It lapses 300 s after that, unless one of its processes, which are the
# last field, lives; whoever renews it counts 240, so that a lease is never renewed while somebody takes it over.

er_lease_read() { # text -> E_*; true where that is a lease
  case $1 in lease/*) ;; *) return 1 ;; esac
  case $1 in *[!][A-Za-z0-9._@:,/\ +-]*) return 1 ;; esac
  [ ${#1} -le 1500 ] || return 1
  IFS=/
  # shellcheck disable=SC2086
  set -- $1
  IFS=$ER_IFS
  [ $# -ge 12 ] || return 1
  E_STATE=$2 E_BOOT=$3 E_HOST=$4 E_NS=$5 E_UP=$6 E_SINCE=$7 E_AT=$8 E_GPUS=$9
  shift 9
  E_WHO=$1 E_PID=$2 E_WORDS=$3 E_PIDS=${4-}
  for _n in "$E_UP" "$E_SINCE" "$E_AT"; do # which are computed with
    case $_n in ''|0?*|*[!0-9]*|???????????*) return 1 ;; esac
  done
}

er_lease_fresh() { # seconds : it was renewed within that, or something of it lives. After er_lease_read
  er_up
  if [ "$E_BOOT" != "$ER_BOOT" ]; then # who renews it may not have noticed yet that the host was restarted
    [ "$E_HOST" = "$ER_HOSTID" ] && [ "$UP" -lt "$1" ]
    return
  fi
  [ $((UP - E_UP)) -ge "$1" ] || return 0
  [ "$E_STATE" = held ] && er_lease_alive
  [ -n "$E_PIDS" ]
}

er_lease_alive() { # E_PIDS: those that live
  _pids=$E_PIDS E_PIDS=
  [ "$E_BOOT" = "$ER_BOOT" ] && [ "$E_NS" = "$ER_NS" ] || return 0
  IFS=,
  for _e in $_pids; do
    IFS=$ER_IFS
    case $_e in *[!0-9:]*|:*|*:) continue ;; esac
    ! er_alive "${_e%%:*}" "${_e##*:}" || E_PIDS=$E_PIDS${E_PIDS:+,}$_e
  done
  IFS=$ER_IFS
}

er_lease_meets() { # gpus : it is about one of these; "all" is any, "-" none
  case $1:$E_GPUS in -:*|:*) return 1 ;; all:*|*:all) return 0 ;; esac
  er_overlap "$1" "$E_GPUS"
}

er_leases() { # function : called for every lease of every user, E_* is what it says
  IFS=$ER_NL
  for _root in $ER_PUBLIC; do
    IFS=$ER_IFS
    set +f
    set -- "$1" "$_root"/eagletui-leases-*
    set -f
    _do=$1
    shift
    for _dir; do
      E_UID=${_dir##*-}
      case $E_UID in ''|*[!0-9]*) continue ;; esac
      [ -d "$_dir" ] && [ ! -h "$_dir" ] && er_lease_own "$_dir" || continue
      set +f
      for _f in "$_dir"/*; do
        set -f
        E_ID=${_f##*/}
        [ -h "$_f" ] && er_valid "$E_ID" && er_lease_read "$(readlink "$_f" 2>/dev/null)" && "$_do" "$_f"
      done
      set -f
    done
    set -- "$_do"
  done
  IFS=$ER_IFS
}

er_lease_own() { # dir : it belongs to the user in its name, and nobody else may write there
  # shellcheck disable=SC2012
  _u=$(ls -ldn "$1" 2>/dev/null) || return 1
  # shellcheck disable=SC2086
  set -- $_u
  case ${1-} in d????-??-*) [ "${3-}" = "$E_UID" ] ;; *) return 1 ;; esac
}

er_lease_fields() { # kind : a line about it
  er_up
  _n=$((UP - E_UP))
  [ "$E_BOOT" = "$ER_BOOT" ] && [ $_n -ge 0 ] || _n=$(($(er_now) - E_AT))
  printf '%s\twhat=lease\tid=%s\tgpus=%s\tby=%s\tpid=%s\twords=%s\tsince=%s\tidle=%s' \
    "$1" "$E_ID" "$E_GPUS" "$E_WHO" "$E_PID" "$E_WORDS" "$E_SINCE" "$_n"
}

er_lease_line() { # those that hold
  if [ "$E_STATE" = held ] && er_lease_fresh 300; then er_lease_fields lease; echo; fi
}

er_lease_bars() { # -> C_LINE where it keeps N_USES from everybody but itself
  [ -z "$C_LINE" ] && [ "$E_STATE" = held ] && er_lease_meets "$N_USES" || return 0
  [ "$E_ID:$E_UID" != "$N_LEASE:$N_UID" ] && er_lease_fresh 300 || return 0
  C_LINE=$(er_lease_fields busy)
}

er_lease_against() { # link : as er_lease_bars; of two who ask, the lower user goes first; whose has lapsed gives way
  [ -z "$C_LINE" ] && er_lease_meets "$N_USES" && [ "$E_ID:$E_UID" != "$N_LEASE:$N_UID" ] || return 0
  if [ "$E_STATE" = asking ]; then
    er_lease_fresh 60 || return 0
    if [ "$E_UID" -lt "$N_UID" ]; then C_LINE=$(er_lease_fields busy); else _wait=1; fi
  elif er_lease_fresh 300; then
    C_LINE=$(er_lease_fields busy)
  else
    _took=$_took$(er_lease_fields took)$ER_NL
    [ "$E_UID" != "$N_UID" ] || _gone=$_gone$ER_NL$1 # those of others stay; they have lapsed
  fi
}

er_lease_put() { # state since pids : makes or replaces the link $D/$N_LEASE
  er_up
  rm -f "$D/.new$ER_ME"
  ln -s "lease/$1/$ER_BOOT/$ER_HOSTID/$ER_NS/$UP/$2/$(er_now)/$N_USES/$N_WHO/$N_PID/$N_PROFILE/$3" "$D/.new$ER_ME" 2>/dev/null &&
    mv -f "$D/.new$ER_ME" "$D/$N_LEASE" 2>/dev/null || { rm -f "$D/.new$ER_ME"; return 1; }
}

er_lease_find() { # id -> D: our directory that has it; else the first that can be written
  _own=
  IFS=$ER_NL
  for _r in $ER_PUBLIC; do
    IFS=$ER_IFS
    D=$_r/eagletui-leases-$ER_UID
    if er_own_dir "$D" && [ -h "$D/$1" ]; then return 0; fi
    [ -z "$_own" ] && { er_own_dir "$D" || mkdir -p "$D" 2>/dev/null; } && er_own_dir "$D" && chmod 755 "$D" 2>/dev/null &&
      ln -s try "$D/.try$ER_ME" 2>/dev/null && rm -f "$D/.try$ER_ME" && _own=$D
  done
  IFS=$ER_IFS
  D=$_own
  [ -n "$D" ]
}

er_lease() { # id gpus who pid words : takes it for as long as it is renewed, or renews it
  N_LEASE=$1 N_USES=$2 N_WHO=$3 N_PID=$4 N_PROFILE=$5 N_UID=$ER_UID
  er_valid "$1" || er_die bad-id "$1"
  er_new_root
  er_lease_find "$1" || er_die no-state-dir "$(printf %s "$ER_PUBLIC" | tr '\n' ' ')"
  er_lock "$ER_ROOT/locks/lease" "$N_WHO" 60 || er_die no-lease "$L_WHO"
  C_LINE='' _took='' _gone='' _since=$(er_now) _kept=
  if er_lease_read "$(readlink "$D/$1" 2>/dev/null)" && [ "$E_STATE" = held ]; then
    er_lease_alive
    _since=$E_SINCE _kept=$E_PIDS
    if [ "$E_GPUS" = "$2" ] && er_lease_fresh 240; then
      er_lease_put held "$_since" "$_kept" || er_die write-failed "$D"
      er_unlock "$ER_ROOT/locks/lease"
      return
    fi
  fi
  # Of other users, who have a lock of their own: asks first, then looks. So of two at least one sees the other.
  _try=0 _wait=1
  while [ -n "$_wait" ] && [ -z "$C_LINE" ]; do
    er_lease_put asking "$_since" '' || er_die write-failed "$D"
    _wait='' _took='' _gone=''
    er_leases er_lease_against
    [ -z "$_wait" ] || [ -n "$C_LINE" ] || er_nap
    _try=$((_try + 1))
    [ $_try -lt 50 ] || [ -z "$_wait" ] || er_die no-lease
  done
  if [ -z "$C_LINE" ]; then
    er_lease_put held "$_since" "$_kept" || er_die write-failed "$D"
    IFS=$ER_NL
    # shellcheck disable=SC2086
    [ -z "$_gone" ] || rm -f $_gone
    IFS=$ER_IFS
    printf %s "$_took"
  else
    rm -f "$D/$1"
    printf '%s\n' "$C_LINE"
  fi
  er_unlock "$ER_ROOT/locks/lease"
}

er_lease_runs() { # the run that was started in $D belongs to the lease N_LEASE: it holds as long as that lives
  _run=$D
  er_lock "$ER_ROOT/locks/lease" "$N_WHO" 60 || return 0
  if er_load "$_run" && er_lease_find "$N_LEASE" && er_lease_read "$(readlink "$D/$N_LEASE" 2>/dev/null)" && [ "$E_STATE" = held ]; then
    er_lease_alive
    N_USES=$E_GPUS N_WHO=$E_WHO N_PID=$E_PID _name=$N_PROFILE N_PROFILE=$E_WORDS
    er_lease_put held "$E_SINCE" "$E_PIDS${E_PIDS:+,}$R_PID:$R_START"
    N_PROFILE=$_name
  fi
  D=$_run
  er_unlock "$ER_ROOT/locks/lease"
}

er_unlease() { # id : gives it back
  er_valid "$1" || er_die bad-id "$1"
  IFS=$ER_NL
  for _r in $ER_PUBLIC; do
    IFS=$ER_IFS
    D=$_r/eagletui-leases-$ER_UID
    ! er_own_dir "$D" || rm -f "$D/$1"
  done
  IFS=$ER_IFS
}

er_conflict() { # dir id : a live run that has the port or one of the GPUs of the run to be launched -> C_ID
  [ -z "$C_ID" ] && [ "$2" != "$N_ID" ] || return 0
  er_meta "$1"
  C_WHAT=
  if [ -n "$N_KEYS" ] && [ "$K_KIND" = bench ] && er_same_keys "$1"; then C_WHAT=measured; fi
  if [ -n "$C_WHAT" ]; then :; elif er_overlap "$N_GPUS" "$K_GPUS"; then C_WHAT=gpus; elif [ "$N_PORT" != - ] && [ "$N_PORT" = "$K_PORT" ]; then C_WHAT=port; fi
  [ -n "$C_WHAT" ] || return 0
  er_inspect "$1" "$2"
  case $S_ST in
    starting|running|finishing) C_ID=$2 ;;
    exited|lost) [ -z "$M" ] || C_ID=$2 ;;
    staged) if er_reserved "$1"; then C_ID=$2; elif [ -f "$1/reserved" ]; then er_drop "$1"; fi ;;
  esac
  [ -n "$C_ID" ] || return 0
  { read -r _st _ _ _ _w _ < "$1/stop"; } 2>/dev/null || _st='' _w=''
  C_LINE="busy${ER_TAB}what=$C_WHAT${ER_TAB}run=$2${ER_TAB}gpus=${K_GPUS#-}${ER_TAB}port=${K_PORT#-}${ER_TAB}stop=$_st${ER_TAB}by=$_w"
}

er_same_keys() { # dir : this measurement and the one to be launched are of one server
  _k=
  { IFS= read -r _k < "$1/measures"; } 2>/dev/null || return 1
  for _w in $N_KEYS; do
    case " $_k " in *" $_w "*) return 0 ;; esac
  done
  return 1
}

er_reserve() { # seconds, then as for er_launch: its locks and its looks, and no start; for so long nobody else gets these GPUs and this port
  N_FOR=$1
  shift
  er_launch "$@"
}

er_launch() { # id kind port gpus who profile; ER_SPEC ER_SECRET ER_ARGS ER_CMD ER_ENGINE ER_FILES ER_FILE_1... Repeat it as you like: one start an id.
  # ER_LEASE: the lease that it belongs to; of a measurement ER_KEYS: words for the server, ER_USES: the GPUs of that
  N_ID=$1 N_KIND=$2 N_PORT=$3 N_GPUS=$4 N_WHO=$5 N_PROFILE=$6 N_FOR=${N_FOR-}
  N_LEASE=${ER_LEASE-} N_KEYS=${ER_KEYS-} N_USES=${ER_USES:-$N_GPUS} N_UID=$ER_UID
  if er_find "$N_ID" && [ -d "$D/claim" ]; then
    er_begun 20
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
  [ -z "$N_KEYS" ] || _locks="$_locks$ER_NL$ER_ROOT/locks/measurement"
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
    [ -n "$C_LINE" ] || er_leases er_lease_bars
    if [ -z "$C_LINE" ] && [ "$N_PORT" != - ] && er_listening "$N_PORT"; then C_LINE="busy${ER_TAB}what=listener${ER_TAB}port=$N_PORT"; fi
    if [ -n "$C_LINE" ]; then :; elif [ -n "$N_FOR" ]; then er_hold; else er_start; fi
    [ -n "$C_LINE$N_FOR" ] || [ -z "$N_LEASE" ] || er_lease_runs
  fi
  _text=$C_LINE
  [ -n "$_text" ] || _text=$([ ! -d "$D/claim" ] || er_begun 20; er_state "$D" "$N_ID")
  # Refused, or not written: nothing of it stays.
  [ -z "$C_LINE" ] || [ -z "$_held" ] || [ -d "$D/claim" ] || rm -rf "$D"
  IFS=$ER_NL
  for _l in $_held; do er_unlock "$_l"; done
  IFS=$ER_IFS
  printf '%s\n' "$_text"
  [ -n "$C_LINE" ] || er_command "$D" "$N_ID"
}

er_hold() { # writes what others must see of a reservation; C_LINE where it could not
  er_up
  er_put "$D/meta" "1 $N_KIND $N_PORT $N_GPUS $N_PROFILE" && er_put "$D/cmd.json" "$ER_CMD" &&
    er_put "$D/reserved" "$ER_BOOT $((UP + N_FOR)) $N_WHO" || C_LINE="error${ER_TAB}write-failed${ER_TAB}$D"
}

er_start() { # writes the files and starts the supervisor; C_LINE where it could not
  if er_put "$D/meta" "1 $N_KIND $N_PORT $N_GPUS $N_PROFILE" && er_put "$D/cmd.json" "$ER_CMD" && er_put "$D/spec" "$ER_SPEC" &&
    { [ -z "$ER_ENGINE" ] || er_put "$D/engine" "$ER_ENGINE"; } &&
    { [ -z "$ER_SECRET" ] || er_put "$D/secret" "$ER_SECRET"; } &&
    { [ -z "$N_KEYS" ] || er_put "$D/measures" "$N_KEYS"; } &&
    { [ -z "$ER_ARGS" ] || er_put "$D/secret.yaml" "$ER_ARGS"; } && er_files && ( : >> "$D/log" ) 2>/dev/null; then
    er_detach sup "$D" "$N_ID"
    er_begun 50
    [ -f "$D/failed" ] || return 0
  fi
  rm -f "$D/secret" "$D/secret.yaml"
  C_LINE="error${ER_TAB}write-failed${ER_TAB}$D"
}

er_begun() { # naps : waits until it is known what came of the start of $D, for whoever asks for the same one too
  _i=0
  while [ ! -s "$D/pid" ] && [ ! -f "$D/failed" ] && [ ! -f "$D/exit" ] && [ $_i -lt "$1" ]; do
    er_nap
    _i=$((_i + 1))
  done
}

er_files() { # ER_FILES: paths; ER_FILE_1, ER_FILE_2, ...: their bytes, which are written as they are
  _i=0
  for _f in $ER_FILES; do
    _i=$((_i + 1))
    case $_f in */*) mkdir -p "$D/${_f%/*}" 2>/dev/null || return 1 ;; esac
    eval "( printf %s \"\$ER_FILE_$_i\" > \"\$D/\$_f\" )" 2>/dev/null || return 1
  done
}

er_detach() { # args... : this program in a session of its own, through a pipe: that works on a full disk too
  printf '%s\ner_main "$@"\n' "$ER_SELF" | (
    umask "$ER_UMASK"
    eval "$ER_LOGIN"
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
  if [ -f "$D/engine" ]; then
    er_contain "$D" "$2"
    return
  fi
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

# A container is the engine's: it is started detached, and what a run needs is asked for: its log, its main process, its exit
# code. So the end of whoever asks changes nothing in the container, and another goes on asking.

er_contain() { # dir id : the supervisor of a container, up to its start
  er_lock "$1/keeper" sup 1 || exit 0
  # The engine prints the id, which is in the file "cid" as well; what it complains about is the log's.
  ( er_child "$1" "$2" ) 2>> "$1/log" > /dev/null < /dev/null
  _rc=$?
  er_load "$1"
  . "$1/engine"
  rm -f "$1/secret"
  if [ "$_rc" = 0 ]; then
    er_put "$1/log.from" "$(($(wc -c < "$1/log")))"
    er_prune "${1%/runs/*}"
    er_load "$1"
    er_keep "$1"
  else
    [ -z "$R_CID" ] || er_engine rm -f -v "$R_CID" >/dev/null 2>&1
    rm -f "$1/secret.yaml"
    until er_put "$1/exit" "$_rc $(er_now)"; do sleep 5; done
  fi
  er_unlock "$1/keeper"
}

er_takeup() { # dir : in place of a supervisor that was killed
  cd /
  trap '' HUP INT QUIT TERM
  er_lock "$1/keeper" sup 1 || exit 0
  . "$1/engine"
  er_load "$1"
  [ -f "$1/exit" ] || er_keep "$1"
  er_unlock "$1/keeper"
}

er_keep() { # dir : records a container's main process, copies its log, waits for its end, writes its exit code, removes it
  _why=
  [ -z "$R_BOOT" ] || [ "$R_BOOT" = "$ER_BOOT" ] || _why=' rebooted'
  er_pstat "$$"
  _ss=$P_START _at=${R_AT:-$(er_now)}
  er_end_copy "$1" &
  while :; do
    _st=$(er_engine inspect -f '{{.State.Running}} {{.State.Pid}} {{.State.OOMKilled}} {{.State.ExitCode}}' "$R_CID" 2>&1)
    case $_st in
      true*)
        _p=${_st#* } _p=${_p%% *}
        P_START=0
        er_pstat "$_p"
        until er_put "$1/pid" "$_p $P_START $ER_BOOT $ER_NS $$ $_ss $_at"; do sleep 5; done
        er_copy "$1" ;;
      false*) break ;;
      *[Nn]o\ such*) # somebody else removed it
        : > "$1/gone"
        rm -f "$1/secret.yaml"
        return ;;
      *) sleep 5 ;; # the engine does not answer now
    esac
    sleep 1
  done
  rm -f "$1/secret.yaml"
  er_have "$1"
  er_engine logs "$R_CID" 2>&1 | tail -c "+$((_have + 1))" >> "$1/log" # what a copy that was cut off has missed
  case $_st in *' true '*) _why=' out-of-memory' ;; esac
  until er_put "$1/exit" "${_st##* } $(er_now)$_why"; do sleep 5; done
  er_engine rm -f -v "$R_CID" >/dev/null 2>&1
}

er_copy() { # dir : copies a container's output into the log until it ends, or the copy does. One process at a time writes
  _c='' _cs=''
  { read -r _c _cs < "$1/copier"; } 2>/dev/null || :
  if [ -z "$_c" ] || ! er_alive "$_c" "$_cs"; then
    er_have "$1"
    if [ "$_have" = 0 ]; then
      er_engine_exec logs -f "$R_CID" >> "$1/log" 2>&1 &
    else
      er_engine logs -f "$R_CID" 2>&1 | { er_skip "$_have"; exec cat >> "$1/log"; } &
    fi
    _c=$!
    P_START=0
    er_pstat "$_c"
    _cs=$P_START
    er_put "$1/copier" "$_c $_cs"
  fi
  wait "$_c" 2>/dev/null
  while er_alive "$_c" "$_cs"; do sleep 2; done # of an earlier supervisor: no child of this one
}

er_end_copy() { # dir : following a log has been seen to hang, so the engine is asked for the end itself
  until er_engine wait "$R_CID" >/dev/null 2>&1; do
    case $(er_engine inspect -f '{{.State.Running}}' "$R_CID" 2>&1) in false*|*[Nn]o\ such*) break ;; esac
    sleep 2
  done
  _i=0
  { read -r _c _cs < "$1/copier"; } 2>/dev/null || return 0
  while er_alive "$_c" "$_cs" && [ $_i -lt 25 ]; do
    er_nap
    _i=$((_i + 1))
  done
  er_alive "$_c" "$_cs" && kill "$_c" 2>/dev/null
}

er_have() { # dir -> _have: bytes of the container's own output that the log holds
  _from=0
  { read -r _from < "$1/log.from"; } 2>/dev/null || :
  _have=$(($(wc -c < "$1/log") - _from))
}

er_skip() { # bytes : drops so many of the standard input
  _rest=$1
  if [ "$_rest" -ge 65536 ] && dd if=/dev/null of=/dev/null iflag=fullblock 2>/dev/null; then
    dd of=/dev/null bs=65536 count=$((_rest / 65536)) iflag=fullblock 2>/dev/null
    _rest=$((_rest % 65536))
  fi
  [ "$_rest" = 0 ] || dd of=/dev/null bs=1 count="$_rest" 2>/dev/null
}

er_main_signal() { # name : to the main process, through the engine where it is a container's
  if [ -n "$R_CID" ]; then
    er_engine kill -s "$1" "$R_CID" >/dev/null 2>&1 && return 0
  fi
  [ -z "$R_PID" ] || kill -s "$1" "$R_PID" 2>/dev/null
}

er_still() { # dir : something of the run lives. After er_wait_gone; a container that has no process on record is asked for
  [ -z "$M" ] || return 0
  [ -n "$R_CID" ] && [ -z "$R_PID" ] && [ ! -f "$1/exit" ] && [ ! -f "$1/gone" ] || return 1
  case $(er_engine inspect -f '{{.State.Running}}' "$R_CID" 2>&1) in false*|*[Nn]o\ such*) return 1 ;; esac
}

er_child() { # dir id : becomes the run's main process
  ER_DIR=$1 ER_CWD=${HOME:-/}
  trap - HUP INT QUIT TERM
  eval "$ER_LOGIN"
  if [ -n "$ER_LCSET" ]; then LC_ALL=$ER_LC; else unset LC_ALL; fi
  umask "$ER_UMASK"
  # setproctitle() (SGLang and vLLM use it) overwrites what /proc/PID/environ shows, unless SPT_NOENV is set.
  EAGLETUI_RUN=$2 SPT_NOENV=1
  export EAGLETUI_RUN SPT_NOENV
  if [ -f "$ER_DIR/secret" ]; then
    . "$ER_DIR/secret"
    rm -f "$ER_DIR/secret"
  fi
  . "$ER_DIR/spec" # set -- argv; ER_CWD; exports
  cd -- "$ER_CWD" 2>/dev/null || {
    ER_WHY='no such directory'
    [ -d "$ER_CWD" ] && ER_WHY='permission denied'
    printf 'eagletui: cannot change to %s: %s\n' "$ER_CWD" "$ER_WHY" >&2
    exit 72
  }
  case $1 in
    */*)
      if [ ! -e "$1" ]; then
        printf 'eagletui: %s: no such file\n' "$1" >&2
        exit 127
      elif [ ! -f "$1" ] || [ ! -x "$1" ]; then
        printf 'eagletui: %s: not executable\n' "$1" >&2
        exit 126
      fi ;;
    *)
      command -v -- "$1" >/dev/null 2>&1 || {
        printf 'eagletui: %s: command not found in %s\n' "$1" "${PATH-}" >&2
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
  [ ! -f "$D/engine" ] || . "$D/engine"
  er_load "$D" || R_PID='' R_START=0
  er_step term
  er_up
  _end=$((UP + Q_GRACE))
  # SGLang drains when its main process alone is asked; a signal to all looks like a crash to it.
  [ -n "$R_PID" ] && er_alive "$R_PID" "$R_START" && er_main_signal TERM
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
  if er_still "$D"; then
    er_step term-all
    er_signal TERM
    er_wait_gone 12
  fi
  _i=0
  while er_still "$D" && [ $_i -lt 40 ]; do
    [ $_i = 0 ] && er_step 'kill'
    [ -z "$R_CID" ] || er_main_signal KILL
    er_signal KILL
    er_wait_gone 1
    _i=$((_i + 1))
  done
  if er_still "$D"; then
    # shellcheck disable=SC2086
    er_step stuck $M
  else
    # The supervisor writes the exit code, and removes a container then; whoever reads "done" finds both so.
    _i=0
    while { [ ! -f "$D/exit" ] || [ -n "$R_CID" ]; } && [ -n "$R_SUP" ] && er_alive "$R_SUP" "$R_SUPSTART" && [ $_i -lt 50 ]; do
      er_nap
      _i=$((_i + 1))
    done
    rm -f "$D/secret" "$D/secret.yaml" "$D/stop.grace"
    er_step 'done'
  fi
  er_unlock "$D/stopper"
}

er_wait_gone() { # naps : waits for the members to end -> M: those that have not. One look is not enough to say that all have:
  # a process that is replaced by its child again and again may be missed by it
  _n=0 _none=0
  while :; do
    er_load "$D" || R_PID='' R_START=0
    er_scan
    er_members "$Q_ID"
    [ -n "$M" ] || er_glimpsed "$Q_ID"
    if [ -n "$M" ]; then
      _none=0
      [ $_n -lt "$1" ] || return 0
    else
      _none=$((_none + 1))
      [ $_none -lt 2 ] || return 0
    fi
    er_nap
    _n=$((_n + 1))
  done
}

er_glimpsed() { # id -> M: processes with its mark, which may be gone before more can be read of them
  set +f
  er_naming "^EAGLETUI_RUN=$1\$" /proc/[0-9]*/environ
  set -f
  for _e in $_named; do
    _p=${_e#/proc/}
    _p=${_p%/environ}
    case " $$ $ER_ME " in *" $_p "*) continue ;; esac
    er_pstat "$_p" || P_START=0
    M="$M $_p:$P_START"
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

er_sockets() { # pids... : their sockets; without one, those of all processes
  _fds=
  for _p; do _fds="$_fds /proc/$_p/fd"; done
  set +f
  # shellcheck disable=SC2086,SC2012
  ls -l ${_fds:-/proc/[0-9]*/fd} /dev/null 2>/dev/null | grep -E '^/proc/[0-9]+/fd:$|socket:\[' | while IFS= read -r _line; do
    case $_line in
      /proc/*) _p=${_line#/proc/} _p=${_p%/fd:} ;;
      *) _n=${_line##*socket:\[}; printf 'sock\t%s\t%s\n' "$_p" "${_n%\]}" ;;
    esac
  done
  set -f
}

er_listeners() { # [port [pid]] : listening sockets as the kernel shows them, in the network of a process
  _hex='[0-9A-F]*'
  [ -z "${1-}" ] || _hex=$(printf %04X "$1")
  grep -hi ":$_hex [0-9A-F]*:0000 0A" "/proc/${2:+$2/}net/tcp" "/proc/${2:+$2/}net/tcp6" 2>/dev/null | while read -r _ _a _ _ _ _ _ _u _ _n _; do
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
  if [ -n "${2-}" ]; then
    er_find "$2" # what is not here, as a job on its node, is known by its mark alone
    if er_load "$D" || [ -z "$D" ]; then er_members "$2"; fi
  fi
  printf 'ours\t%s\t%s\n' "${2:--}" "${M# }"
  _mine=
  for _e in $M; do _mine="$_mine ${_e%%:*}"; done
  # shellcheck disable=SC2086
  _socks=$([ -z "$_mine" ] || er_sockets $_mine)
  _left=
  IFS=$ER_NL
  for _row in $_rows; do
    case "$_socks$ER_NL" in *"$ER_TAB${_row##*"$ER_TAB"}$ER_NL"*) ;; *) _left=1 ;; esac
  done
  IFS=$ER_IFS
  if [ -n "$_left" ]; then _socks=$(er_sockets); fi
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

er_foreign() { # engines : processes that look like a server of SGLang or vLLM, with their ancestors and sockets
  set +f
  er_naming 'sglang|vllm|VLLM' /proc/[0-9]*/cmdline
  set -f
  _cl=$_named
  _pids=
  [ -n "$_cl" ] || { er_boxes "$1"; return; }
  [ -n "$ER_SNAP" ] || er_scan
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
  er_boxes "$1"
  er_each er_record
}

er_watch() { # life period pythons flags : says when a look is worth it, as host_watch.py (ER_WATCHER) does and describes
  _life=$1 _period=$2 _pythons=$3 _flags=$4
  set --
  IFS=$ER_NL
  for _r in $ER_ROOTS; do set -- "$@" "$_r/$ER_HOSTID/runs"; done
  IFS=$ER_IFS
  for _py in $_pythons; do
    command -v "$_py" >/dev/null 2>&1 || continue
    # shellcheck disable=SC2086
    printf '%s\n' "$ER_WATCHER" | "$_py" $_flags - "$_life" "$_period" "$@" 2>/dev/null && return
  done
  # Without one: a grep each time, and the files that say how far a run is.
  er_up
  _end=$((UP + _life)) _was=
  while [ "$UP" -lt $_end ]; do
    set +f
    er_naming 'sglang|vllm|VLLM' /proc/[0-9]*/cmdline
    for _d; do
      for _f in "$_d"/*; do
        _st='' _p=''
        { IFS= read -r _st < "$_f/stop"; } 2>/dev/null
        { read -r _p _ < "$_f/pid"; } 2>/dev/null
        [ ! -f "$_f/exit" ] || _p=exit
        [ -d "/proc/$_p" ] || _p="$_p-"
        _named="$_named$ER_NL${_f##*/} $_st $_p"
      done
    done
    set -f
    _named=.$_named
    if [ -z "$_was" ]; then echo W; elif [ "$_named" != "$_was" ]; then echo C; fi
    _was=$_named
    sleep $((_period * 10))
    er_up
  done
}

er_limit() { # ER_LIMIT: what an engine that hangs must not hold up
  ER_LIMIT=
  ! command -v timeout >/dev/null 2>&1 || ER_LIMIT='timeout 10'
}

er_boxes() { # engines : the containers of _pids by their cgroups, and the copies of their logs that are kept here
  _cgs=/proc/self/cgroup
  for _p in $_pids; do _cgs="$_cgs /proc/$_p/cgroup"; done
  _mine=
  # shellcheck disable=SC2086
  for _l in $(grep -oE '[^/:]*/[^/:]*[0-9a-f]{64}' $_cgs /dev/null 2>/dev/null | tr ' ' _); do
    _p=${_l#/proc/} _b=${_l##*[!0-9a-f]}
    case $_l in
      /proc/self/*) _mine=$_b ;; # in this very container everything is
      *) [ "$_b" = "$_mine" ] || printf 'box\t%s\t%s\t%s\n' "${_p%%/*}" "$_b" "${_l#*:}" ;;
    esac
  done
  # What is dead between two starts has no process: its engine is asked, where that was asked for.
  er_limit
  for _e in $1; do
    command -v "$_e" >/dev/null 2>&1 || continue
    for _b in $($ER_LIMIT "$_e" ps -q --no-trunc --filter status=restarting 2>/dev/null </dev/null); do
      _o=$($ER_LIMIT "$_e" inspect -f '{{.State.StartedAt}} {{json .Path}} {{json .Args}}' "$_b" 2>/dev/null </dev/null) &&
        printf 'loop\t%s\t%s\n' "$_b" "$_o"
    done
  done
  IFS=$ER_NL
  set +f
  for _r in $ER_ROOTS; do
    for _f in "$_r/$ER_HOSTID/boxes"/*/log; do
      [ -f "$_f" ] || continue
      _b=${_f%/log}
      printf 'copy\t%s\t%s\n' "${_b##*/}" "$_f"
    done
  done
  set -f
  IFS=$ER_IFS
}

er_ask_engines() { # names or ids... : what the engines of this host know of containers
  er_limit
  for _e in docker podman nerdctl; do
    command -v "$_e" >/dev/null 2>&1 || continue
    for _b; do
      if _o=$($ER_LIMIT "$_e" inspect -f '{{.Id}}|{{.Name}}|{{.Config.Image}}|{{.RestartCount}}|{{.State.Status}}|{{.State.ExitCode}}|{{.Image}}|{{.HostConfig.NetworkMode}}|{{.State.StartedAt}}|{{with .NetworkSettings}}{{with .Ports}}{{json .}}{{end}}{{end}}' "$_b" 2>&1 </dev/null); then
        printf 'box\t%s\t%s\t%s\n' "$_b" "$_e" "${_o##*"$ER_NL"}"
      else
        printf 'unasked\t%s\t%s\t%s\n' "$_b" "$_e" "$(printf %s "$_o" | tr "\n\t" "  ")"
      fi
    done
  done
}

er_adopt() { # engine name : the output of a container in a file here, which goes on as long as the container -> its path
  command -v "$1" >/dev/null 2>&1 || er_die no-engine "$1"
  er_new_root
  _o=$("$1" inspect -f '{{.Id}}' "$2" 2>&1 </dev/null) || er_die no-container "$(printf %s "$_o" | tr "\n\t" "  ")"
  R_CID=${_o##*"$ER_NL"}
  er_private_dir "$ER_ROOT/boxes" || er_die write-failed "$ER_ROOT/boxes"
  # Copies that nothing was added to for two days go.
  find "$ER_ROOT/boxes" -name log -mtime +2 2>/dev/null | while IFS= read -r _f; do rm -rf "${_f%/log}"; done
  D=$ER_ROOT/boxes/$R_CID
  er_private_dir "$D" && er_put "$D/cid" "$R_CID" || er_die write-failed "$D"
  er_put "$D/engine" "er_engine() { $1 \"\$@\" </dev/null; }
er_engine_exec() { exec $1 \"\$@\" </dev/null; }"
  er_lock "$D/opener" adopt 150 || er_die write-failed "$D"
  _c='' _cs=''
  { read -r _c _cs < "$D/copier"; } 2>/dev/null || :
  if [ -z "$_c" ] || ! er_alive "$_c" "$_cs"; then
    : >> "$D/log"
    "$1" logs "$R_CID" 2>&1 </dev/null | { er_have "$D"; er_skip "$_have"; cat >> "$D/log"; }
    er_detach copy "$D"
  fi
  er_unlock "$D/opener"
  printf 'path\t%s\n' "$D/log"
}

er_copy_box() { # dir : the copy of a container that is not ours
  cd /
  trap '' HUP INT QUIT TERM
  er_lock "$1/keeper" copy 1 || exit 0
  . "$1/engine"
  read -r R_CID < "$1/cid"
  er_end_copy "$1" &
  while :; do
    er_copy "$1"
    case $(er_engine inspect -f '{{.State.Status}}' "$R_CID" 2>&1) in exited|dead|stopped|*[Nn]o\ such*) break ;; esac
    sleep 2
  done
  er_unlock "$1/keeper"
}

er_main() { # command args...
  case $1 in launch|sup) ER_LOGIN=$(export -p) ;; *) ER_LOGIN= ;; esac
  case $ER_LOGIN in *SHELLOPTS=*|*BASHOPTS=*) ER_LOGIN= ;; esac # cannot be set again
  er_init
  _cmd=$1
  shift
  case $_cmd in
    launch) er_launch "$@" ;;
    reserve) er_reserve "$@" ;;
    release) er_release "$@" ;;
    lease) er_lease "$@" ;;
    unlease) er_unlease "$@" ;;
    leases) er_leases er_lease_line ;;
    sup) er_sup "$@" ;;
    stop) er_stop "$@" ;;
    stopper) er_stopper "$@" ;;
    keep) er_takeup "$@" ;;
    status) for _id; do if er_find "$_id"; then er_state "$D" "$_id"; else printf 'absent\t%s\n' "$_id"; fi; done ;;
    list) er_each er_state ;;
    look) er_each er_state; [ "${2-}" != all ] || er_each er_command; er_foreign "$1" ;;
    commands) for _id; do er_find "$_id" && er_command "$D" "$_id"; done ;;
    all) er_each er_state; er_each er_command ;;
    port) er_port "$@" ;;
    netport) er_listeners "$2" "$1" ;;
    foreign) er_foreign "${1-}" ;;
    watch) er_watch "$@" ;;
    engines) er_ask_engines "$@" ;;
    adopt) er_adopt "$@" ;;
    copy) er_copy_box "$@" ;;
    *) er_die usage "$_cmd" ;;
  esac
  printf 'end\n'
}
