#!/bin/sh
@OPTIONS@
# eagletui @ID@: nodes that are held for the launches of an experiment, one after the other. Submitted as: sbatch … HOLD/job.sh HOLD
# A launch is a file in HOLD/next with its directory; its own job.sh is run there as if it were the job. docs/slurm.md.
set -u
umask 077
hold=$1 server= over=

put() { printf '%s\n' "$2" >"$hold/$1.t$$" && mv -f "$hold/$1.t$$" "$hold/$1"; }
give_back() {
  [ -e "$hold/release" ] || put release "$(date +%s)"
  over=yes
  [ -z "$server" ] || kill -TERM "$server" 2>/dev/null
}

[ "${SLURM_RESTART_COUNT:-0}" = 0 ] || { echo "refused: this job was started again" >&2; exit 76; }
mkdir "$hold/claim" 2>/dev/null || { echo "refused: @ID@ was started already" >&2; exit 75; }
put claim/job "$SLURM_JOB_ID"
put nodes "$SLURM_JOB_NODELIST"
trap give_back TERM
seen= quiet=0 patience=@GRACE@
while :; do
  if [ -n "$server" ] && ! kill -0 "$server" 2>/dev/null; then
    wait "$server"
    server=
  fi
  # Who drives the experiment writes another time into `alive` now and then; only that it changes counts, no clock.
  now=
  [ ! -r "$hold/alive" ] || read -r now <"$hold/alive"
  [ "$now" = "$seen" ] || quiet=0
  seen=$now quiet=$((quiet + 1))
  if [ -z "$over" ] && { [ -e "$hold/release" ] || [ "$quiet" -gt @IDLE@ ]; }; then give_back; fi
  if [ -n "$over" ]; then
    [ -n "$server" ] && [ "$patience" -gt 0 ] || exit 0
    patience=$((patience - 1))
  elif [ -z "$server" ]; then
    for next in "$hold"/next/*; do
      [ -r "$next" ] && read -r run <"$next" || continue
      rm -f "$next"
      [ ! -e "$run/claim" ] || continue
      put used "$run"
      /bin/sh "$run/job.sh" "$run" >>"$run/batch.log" 2>&1 &
      server=$!
      break
    done
  fi
  sleep 1 &
  wait $!
done
