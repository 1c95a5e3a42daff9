#!/bin/sh
# slurm: submits, watches and stops jobs from a login host. POSIX sh, Slurm's own commands, and
# cat cut date grep head id ls mkdir mv rm sed setsid sleep tr where there are any.
# It is sent on the standard input of "/bin/sh -s"; tui/core/slurm/helper.py sends it and reads its answers. Answers are
# lines of fields between \037, which no text of Slurm holds, the first one names the kind of line; `end` closes one.
# Only functions here: what runs is the one call that the sender puts behind them. docs/slurm.md describes the files.
# The sender drops comment lines and indentation, so no text over several lines may begin a line with a blank or '#'.

sl_init() {
  set -u
  LC_ALL=C
  export LC_ALL SLURM_TIME_FORMAT=%s
  unset EAGLETUI_RUN
  umask 077
  U=$(printf '\037')
  NL='
'
  if [ -n "${EAGLETUI_STATE-}" ]; then ROOT=$EAGLETUI_STATE
  elif [ -n "${EAGLETUI_HOME-}" ]; then ROOT=$EAGLETUI_HOME/state
  else ROOT=${XDG_STATE_HOME:-${HOME-}/.local/state}/eagletui
  fi
  ROOT=$ROOT/slurm
}

sl_say() { # fields... : one line of the answer
  _line=$1
  shift
  for _field; do _line=$_line$U$_field; done
  printf '%s\n' "$_line"
}

sl_words() { # text : one line of it, short, for a message
  printf %s "$1" | tr '\n\037\t' '   ' | cut -c 1-400
}

sl_put() { # path text : a small file, whole or not at all
  if ( printf '%s\n' "$2" > "$1.t$$" ) 2>/dev/null && mv -f "$1.t$$" "$1" 2>/dev/null; then return 0; fi
  rm -f "$1.t$$" 2>/dev/null
  return 1
}

sl_get() { # path -> GOT: its first line, "" where there is none
  GOT=
  [ -r "$1" ] && IFS= read -r GOT < "$1"
  return 0
}

sl_cluster() { # CLUSTER: as asked for, else as the controller says
  CLUSTER=$1
  [ "$CLUSTER" = - ] || return 0
  _said=$(scontrol show config 2>&1) || _said=
  CLUSTER=$(printf '%s\n' "$_said" | sed -n 's/^ClusterName *= *//p' | tr -c 'A-Za-z0-9._\n-' _)
  [ -n "$CLUSTER" ] || CLUSTER=-
}

sl_queue() { # QUEUE: the user's jobs, a line each; fails where the controller does not answer, which QUEUE then says
  QUEUE=$(squeue -h -t all -u "$(id -un)" -o "%i$U%T$U%r$U%N$U%k$U%j$U%S$U%e$U%L$U%b$U%P$U%D$U%V" 2>&1)
}

sl_line_of() { # job -> LINE: its line of QUEUE
  LINE=
  case $NL$QUEUE in *"$NL$1$U"*) ;; *) return 1 ;; esac
  LINE=${NL}$QUEUE
  LINE=${LINE#*"$NL$1$U"}
  LINE=$1$U${LINE%%"$NL"*}
}

sl_job_by_id() { # id -> JOB: the newest job of QUEUE that has our id in its comment
  JOB=$(printf '%s\n' "$QUEUE" | cut -d "$U" -f 1,5 | grep -x "[0-9]*${U}eagletui=$1" | sed -n '$p' | cut -d "$U" -f 1)
  [ -n "$JOB" ]
}

sl_over() { # a word of Slurm's that is an end
  case $1 in
    COMPLETED|FAILED|TIMEOUT|NODE_FAIL|CANCELLED*|PREEMPTED|OUT_OF_MEMORY|BOOT_FAIL|DEADLINE|REVOKED) return 0 ;;
  esac
  return 1
}

sl_last() { # dir words : writes `slurm`, Slurm's last words of a job, behind what srun and its daemons said in the logs
  _errors=$(set +f; for _log in "$1"/batch.log "$1"/log.?; do tail -c 20000 "$_log"; done 2>/dev/null |
    grep -aE '^(srun|slurmstepd[^:]*): (error|Exceeded|Job|\*)' | head -n 5)
  sl_put "$1/said" "$(sl_words "$_errors")"
  rm -f "$1/secret" "$1/secret.yaml" # of a job that never began
  sl_put "$1/slurm" "$2"
}

sl_settle() { # dir id job : writes Slurm's last words of a job that is over, once; fails while it is not over
  [ ! -s "$1/slurm" ] || return 0
  if _told=$(scontrol show job -d -o "$3" 2>&1); then
    _state=${_told##* JobState=}
    sl_over "${_state%% *}" || return 1
    case $_told in
      *"Comment=eagletui=$2 "*|*"JobName=eagletui-$2 "*)
        case $_state in
          CANCELLED*) # only the accounts know by whom, where there are any
            _by=$(sacct -n -P -X -j "$3" -o State%60 2>/dev/null | sed -n 's/.*CANCELLED by \([0-9]\{1,10\}\).*/\1/p' | sed -n 1p)
            [ -z "$_by" ] || _told="$_told CancelledBy=$(id -nu "$_by" 2>/dev/null || echo "$_by")" ;;
          NODE_FAIL*)
            sl_get "$1/nodes" # Slurm's own list may have lost the node by now
            for _ in 1 2 3; do # the job may be called so before its node is
              _down=$(sinfo -h -N -n "$GOT" -o '%N %T %E' 2>/dev/null | grep -i 'down\|fail\|drain\|unk' | sort -u)
              [ -z "$_down" ] || break
              sleep 1
            done
            _told="$_told DownNodes=$(sl_words "$_down")" ;;
        esac
        sl_last "$1" "$_told"
        return ;;
    esac
  else
    case $_told in *"Invalid job id"*) ;; *) return 1 ;; esac
  fi
  # Slurm has forgotten it: the accounts, where there are any. Ids are used again, so the name must be ours.
  _told=$(sacct -n -P -X -D -j "$3" -o JobName%120,State%60,ExitCode,Start,End,NodeList%200 2>/dev/null | grep "^eagletui-$2|" | sed -n '$p')
  _state=${_told#*|}
  [ -z "$_told" ] || sl_over "${_state%%|*}" || return 1
  sl_last "$1" "sacct|$_told"
}

sl_ended() { # dir id job : as sl_settle; a launch in an allocation that is held ends before that does
  sl_get "$1/held"
  HELD=$GOT
  [ -n "$HELD" ] || { sl_settle "$@"; return; }
  [ ! -s "$1/slurm" ] || return 0
  sl_get "$1/exit"
  _ended=$GOT _state=
  # What was told that its time is up, or ended badly, may have ended with the whole: Slurm is asked.
  if [ -z "$_ended" ] || [ -s "$1/term" ] || [ "${_ended%% *}" != 0 ]; then
    ! sl_settle "$1" "$HELD" "$3" || return 0
    [ -n "$_ended" ] && [ ! -s "$1/term" ] && [ "${_state%% *}" = RUNNING ] || return 1
  fi
  sl_get "$1/nodes"
  sl_last "$1" "held|$_ended|$GOT"
}

sl_dirs() { # DIRS: directories of runs, the newest first, a line each
  set +f
  if [ "$CLUSTER" = - ]; then DIRS=$(ls -1td "$ROOT"/*/runs/*/ 2>/dev/null | head -n 200)
  else DIRS=$(ls -1td "$ROOT/$CLUSTER"/runs/*/ 2>/dev/null | head -n 200); fi
  set -f
}

sl_run() { # dir asked : what the files say
  D=${1%/}
  ID=${D##*/}
  sl_get "$D/claim/job"
  JOB=$GOT
  [ -n "$JOB" ] || { sl_get "$D/job"; JOB=$GOT; }
  [ -n "$JOB" ] || [ "$2" != asked ] || ! sl_job_by_id "$ID" || sl_put "$D/job" "$JOB"
  case $JOB in *[!0-9]*) JOB= ;; esac
  sl_get "$D/exit"
  _exit=$GOT
  if [ -n "$JOB" ] && [ ! -s "$D/slurm" ]; then
    if [ "$2" = asked ]; then
      # Of a job that waits or runs its line says all there is.
      _word=
      if sl_line_of "$JOB"; then _word=${LINE#*"$U"} _word=${_word%%"$U"*}; fi
      if [ -z "$_word" ] || [ -n "$_exit" ] || sl_over "$_word"; then sl_ended "$D" "$ID" "$JOB"; fi
    elif [ -n "$_exit" ]; then sl_ended "$D" "$ID" "$JOB"
    fi
  fi
  set -- "$ID" "$D" "$JOB" "$_exit"
  for _f in begun stop term refused slurm said; do
    sl_get "$D/$_f"
    set -- "$@" "$GOT"
  done
  sl_say run "$@"
  _n=0
  while [ -e "$D/log.$_n" ]; do
    sl_get "$D/node.$_n"
    _node=$GOT
    sl_get "$D/exit.$_n"
    sl_say rank "$ID" "$_n" "$_node" "$GOT"
    _n=$((_n + 1))
  done
}

sl_look() { # cluster ask|files known... : jobs and runs; cmd.json of the runs that are not known
  sl_cluster "$1"
  sl_say cluster "$CLUSTER"
  _how=files QUEUE=
  if [ "$2" = ask ]; then
    if sl_queue; then
      _how=asked
      sl_say queue ok
      [ -z "$QUEUE" ] || printf '%s\n' "$QUEUE" | sed "s/^/job$U/"
    else
      sl_say queue failed "$(sl_words "$QUEUE")"
    fi
  fi
  shift 2
  KNOWN=" $* "
  sl_dirs
  IFS=$NL
  for _d in $DIRS; do
    unset IFS
    sl_run "$_d" "$_how"
    case $KNOWN in *" $ID "*) ;; *) [ ! -r "$D/cmd.json" ] || sl_say cmd "$ID" "$(tr -d '\n\037' < "$D/cmd.json")" ;; esac
  done
  unset IFS
  sl_say end
}

# Submitting: who makes `submitting` sends; everybody else waits for its answer. An answer that was lost is looked for in
# the queue before anything is sent again.

sl_away() { # text : whether it says that the controller was not reached
  case $1 in *"contact slurm controller"*|*"timed out"*|*"onnection refused"*|*"Zero Bytes"*|*"standby mode"*) return 0 ;; esac
  return 1
}

sl_no_controller() { # text
  sl_say error no-controller "$(sl_words "$1")"
  exit 1
}

sl_submit() { # id ranks [allocation] ; JOB_SCRIPT, JOB_COMMAND, JOB_SECRET, JOB_ARGS are set
  sl_cluster -
  [ "$CLUSTER" != - ] || sl_no_controller "$(scontrol ping 2>&1)"
  ID=$1 _ranks=$2 INTO=${3-}
  D=$ROOT/$CLUSTER/runs/$ID
  mkdir -p "$D" 2>/dev/null && chmod 700 "$D" && [ -w "$D" ] || { sl_say error no-state-dir "$D"; exit 1; }
  if mkdir "$D/submitting" 2>/dev/null; then sl_files "$_ranks" && sl_send
  else sl_await_job || sl_found || { sl_files "$_ranks" && sl_send; }
  fi
  sl_say submitted "$JOB"
  sl_look "$CLUSTER" ask
}

sl_files() { # ranks : what the job reads, its script last
  _n=0
  while [ "$_n" -lt "$1" ]; do
    [ -e "$D/log.$_n" ] || : > "$D/log.$_n" || break
    _n=$((_n + 1))
  done
  if [ "$_n" = "$1" ] && { [ -z "$JOB_SECRET" ] || sl_put "$D/secret" "$JOB_SECRET"; } &&
    { [ -z "$JOB_ARGS" ] || sl_put "$D/secret.yaml" "$JOB_ARGS"; } &&
    sl_put "$D/cmd.json" "$JOB_COMMAND" && sl_put "$D/job.sh" "$JOB_SCRIPT"; then return 0; fi
  sl_say error write-failed "$D"
  exit 1
}

sl_send() { # JOB, or the end
  [ -z "$INTO" ] || { sl_hand_over; return; }
  _said=$(sbatch --parsable --output="$D/batch.log" --chdir="$D" "$D/job.sh" "$D" 2>&1)
  _rc=$?
  JOB=$(printf '%s\n' "$_said" | sed -n 's/^\([0-9][0-9]*\)\(;.*\)\{0,1\}$/\1/p' | sed -n '$p')
  if [ "$_rc" = 0 ] && [ -n "$JOB" ]; then
    sl_put "$D/job" "$JOB"
    return 0
  fi
  # No number: it may be in the queue all the same.
  sl_found && return 0
  # A job that comes up after all finds no directory to make its claim in.
  case $_said in *"connect failure"*) SENT=refused ;; esac # nothing has left this host
  [ "$SENT" = unknown ] || rm -rf "$D"
  [ "$SENT" = unknown ] || ! sl_away "$_said" || sl_no_controller "$_said"
  sl_say error "$SENT" "$(sl_words "$_said")"
  exit 1
}

sl_found() { # JOB by our id, in the claim or in the queue; SENT: refused, or unknown where the queue does not answer
  SENT=unknown
  for _ in 1 2 3; do
    sl_get "$D/claim/job"
    JOB=$GOT
    [ -z "$JOB" ] || return 0
    if sl_queue; then
      SENT=refused
      if sl_job_by_id "$ID"; then
        sl_put "$D/job" "$JOB"
        return 0
      fi
    fi
    sleep 1
  done
  return 1
}

sl_await_job() { # JOB, as whoever sends it writes it down
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
    sl_get "$D/job"
    JOB=$GOT
    [ -z "$JOB" ] || return 0
    sleep 1
  done
  return 1
}

sl_test() { # JOB_SCRIPT is set: whether and when it could start
  _said=$(printf '%s\n' "$JOB_SCRIPT" | SLURM_TIME_FORMAT=standard sbatch --test-only 2>&1)
  _rc=$?
  [ "$_rc" = 0 ] || ! sl_away "$_said" || sl_no_controller "$_said"
  sl_say test "$_rc" "$(sl_words "$_said")"
  sl_say end
}

# Holding: a job that only waits, and starts in itself what is put into its `next`. It ends once `release` is there, which
# it writes itself where `alive` has not changed for too long.

sl_held_by() { # name : D, ID: the newest allocation of this name, or the next one where none has room; fails where there is none
  _n=1
  while D=$ROOT/$CLUSTER/holds/$1-$_n ID=$1-$_n && [ -d "$D" ]; do
    sl_get "$D/job"
    JOB=$GOT
    if [ ! -e "$D/release" ]; then
      [ -n "$JOB" ] || return 0
      if sl_line_of "$JOB"; then
        _word=${LINE#*"$U"}
        case ${_word%%"$U"*} in PENDING|CONFIGURING|RUNNING) return 0 ;; esac
      fi
    fi
    _n=$((_n + 1))
  done
  return 1
}

sl_hold() { # name ; JOB_SCRIPT is set, with @N@ for the number: its allocation, submitted where there is none
  sl_cluster -
  [ "$CLUSTER" != - ] && sl_queue || sl_no_controller "$(scontrol ping 2>&1)"
  INTO=
  sl_held_by "$1" || :
  if [ ! -s "$D/job" ]; then
    JOB_SCRIPT=$(printf '%s\n' "$JOB_SCRIPT" | sed "s/@N@/$_n/g")
    mkdir -p "$D/next" 2>/dev/null && chmod 700 "$D" && sl_put "$D/alive" "$(date +%s)" &&
      sl_put "$D/job.sh" "$JOB_SCRIPT" || { sl_say error no-state-dir "$D"; exit 1; }
    if mkdir "$D/submitting" 2>/dev/null; then sl_send
    else sl_await_job || sl_found || sl_send
    fi
    sl_queue || QUEUE=
  fi
  sl_put "$D/alive" "$(date +%s)"
  sl_line_of "$JOB" || LINE=$JOB
  sl_say held "$ID" "$([ -e "$D/used" ] && echo used)"
  sl_say job "$LINE"
  sl_say end
}

sl_keep() { # cluster name : whoever drives it lives
  sl_cluster "$1"
  D=$(set +f; ls -1td "$ROOT/$CLUSTER/holds/$2"-*/ 2>/dev/null | head -n 1)
  [ -z "$D" ] || sl_put "${D%/}/alive" "$(date +%s)"
  sl_say end
}

sl_release() { # cluster name : all of this name; what waits is cancelled, what runs ends by itself
  sl_cluster "$1"
  set +f
  for D in "$ROOT/$CLUSTER/holds/$2"-*/; do
    D=${D%/}
    [ -d "$D" ] || continue
    [ ! -e "$D/release" ] || continue
    sl_put "$D/release" "$(date +%s)"
    sl_get "$D/job"
    [ -z "$GOT" ] || scancel --state=PENDING "$GOT" 2>/dev/null
  done
  sl_say end
}

sl_hand_over() { # JOB: that of the allocation INTO, which starts it
  sl_get "$ROOT/$CLUSTER/holds/$INTO/job"
  JOB=$GOT
  [ -n "$JOB" ] && sl_put "$D/held" "$INTO" && sl_put "$D/../../holds/$INTO/next/$ID" "$D" && sl_put "$D/job" "$JOB" ||
    { sl_say error write-failed "$D"; exit 1; }
}

# Stopping: rank 0's main process, time to drain, then the whole job. It goes on here whatever happens to the link.

sl_stop() { # cluster id grace who
  sl_cluster "$1"
  QUEUE=
  set +f
  for D in "$ROOT"/*/runs/"$2"/; do D=${D%/}; [ -d "$D" ] && break; done
  set -f
  [ -d "$D" ] || { sl_say error unknown-run "$2"; exit 1; }
  sl_get "$D/claim/job"
  JOB=$GOT
  [ -n "$JOB" ] || { sl_get "$D/job"; JOB=$GOT; }
  ID=$2
  if [ -z "$JOB" ] && ! { sl_queue && sl_job_by_id "$ID"; }; then sl_say error not-submitted "$ID"; exit 1; fi
  # Who carries it out may have been killed, or its host restarted: then another does.
  sl_get "$D/stopping/by"
  if [ -z "$GOT" ] && [ -d "$D/stopping" ]; then # or before it could say who it is
    sleep 3
    sl_get "$D/stopping/by"
    [ -n "$GOT" ] || rm -rf "$D/stopping"
  fi
  if [ "${GOT#* }" = "$(uname -n)" ] && ! grep -aqs 'sl_main end' "/proc/${GOT%% *}/cmdline"; then rm -rf "$D/stopping"; fi
  if [ ! -s "$D/slurm" ] && mkdir "$D/stopping" 2>/dev/null; then
    sl_put "$D/stop" "requested $(date +%s) $4"
    export SL_SELF
    set -- "$D" "$ID" "$JOB" "$3" "$4"
    _run='eval "$SL_SELF"; sl_main end "$@"'
    if command -v setsid >/dev/null 2>&1; then setsid /bin/sh -c "$_run" sh "$@" </dev/null >/dev/null 2>&1 &
    else ( trap '' HUP; exec /bin/sh -c "$_run" sh "$@" ) </dev/null >/dev/null 2>&1 &
    fi
  fi
  sl_look "$CLUSTER" files
}

sl_cancel() { # the job; of a launch in an allocation that is held its steps, or that it ever begins there
  sl_get "$D/held"
  if [ -z "$GOT" ]; then scancel "$JOB"
  elif rm -f "$D/../../holds/$GOT/next/$ID" && mkdir "$D/claim" 2>/dev/null; then sl_put "$D/exit" "143 $(date +%s)"
  else
    for _step in $(squeue -h -s -j "$JOB" -o '%i %j' | sed -n "s/ eagletui-$ID\$//p"); do scancel "$_step"; done
  fi
}

sl_step() { sl_put "$D/stop" "$1 $(date +%s) $2"; }

sl_end() { # dir id job grace who
  D=$1 ID=$2 JOB=$3
  shift 3
  sl_put "$D/stopping/by" "$$ $(uname -n)"
  _state=$(squeue -h -j "$JOB" -o %T 2>/dev/null)
  if [ "$_state" = RUNNING ] && [ -s "$D/node.0" ]; then
    sl_step term "$2"
    read -r _node _pid _ < "$D/node.0"
    srun --quiet --overlap --jobid="$JOB" -N1 -n1 -w "$_node" /bin/sh -c 'kill -TERM "$1"' sh "$_pid"
    _left=$(($1 * 2))
    while [ "$_left" -gt 0 ] && [ ! -s "$D/exit" ]; do sleep 0.5; _left=$((_left - 1)); done
  fi
  if [ ! -s "$D/exit" ]; then
    sl_step kill "$2"
    sl_cancel
  fi
  _tries=0
  until sl_ended "$D" "$ID" "$JOB"; do
    sleep 1
    _tries=$((_tries + 1))
    # An answer that did not come, or a job that was not to be moved: asked again, then said.
    [ $((_tries % 20)) != 0 ] || sl_cancel
    [ "$_tries" -lt 120 ] || { sl_step stuck "$2"; rm -rf "$D/stopping"; return; }
  done
  scancel --name="eagletui-$ID" --user="$(id -un)" 2>/dev/null # another job of this launch, whose answer was lost
  sl_step done "$2"
}

sl_main() {
  sl_init
  command -v squeue >/dev/null 2>&1 || { sl_say error no-slurm; exit 1; }
  set -f
  "sl_$@"
}
