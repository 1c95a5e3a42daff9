#!/bin/sh
@OPTIONS@
# eagletui @ID@: one server, a rank a node. Submitted as: sbatch --output=RUN/batch.log RUN/job.sh RUN
# RUN is a directory on a disk that login host and nodes share; docs/slurm.md says what is in it.
set -u
umask 077
run=$1

stamp() { date +%s.%N; }
put() { printf '%s\n' "$2" >"$run/$1.t$$" && mv -f "$run/$1.t$$" "$run/$1"; }
# A signal ends a wait early: the exit code is that of the last one.
await() { wait "$1"; code=$?; while kill -0 "$1" 2>/dev/null; do wait "$1"; code=$?; done; }

rank() {
  n=$SLURM_NODEID
  export EAGLETUI_RUN=@ID@ PYTHONUNBUFFERED=1
@RANK@
  trap : TERM INT
  "$@" &
  put "node.$n" "${SLURMD_NODENAME:-$(uname -n)} $! $(stamp)"
  await $!
  put "exit.$n" "$code $(stamp)"
  exit "$code"
}
if [ "${2-}" = rank ]; then rank; fi

# A second start of one launch: the same job again, or another job of the same id.
claimed=
[ ! -r "$run/claim/job" ] || read -r claimed <"$run/claim/job"
if [ "${SLURM_RESTART_COUNT:-0}" != 0 ] || [ "$claimed" = "$SLURM_JOB_ID" ]; then
  put refused "$(stamp)"
  echo "refused: this job was started again" >&2
  exit 76
fi
[ ! -e "$run/stop" ] || { echo "refused: @ID@ was stopped before it began" >&2; exit 75; }
mkdir "$run/claim" 2>/dev/null || { echo "refused: @ID@ was started already" >&2; exit 75; }
put claim/job "$SLURM_JOB_ID"
put nodes "$SLURM_JOB_NODELIST"
put begun "$(stamp)"
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
address=$(scontrol -o show node "$head" 2>/dev/null | sed -n 's/.* NodeAddr=\([^ ]*\) .*/\1/p')
port=@PORT@
@FREE@
export EAGLETUI_HEAD="${address:-$head}:$port"
[ -z "${SLURM_CPUS_PER_TASK-}" ] || export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"

# Rank 0's main process alone is told: it drains and tells the others. A signal to every process looks like a crash.
drain() {
  put term "$(stamp)"
  srun --quiet --overlap --jobid="$SLURM_JOB_ID" -N1 -n1 -w "$head" /bin/sh -c 'read -r _ pid _ <"$1" && kill -TERM "$pid"' sh "$run/node.0"
}
trap drain TERM
srun --kill-on-bad-exit=1 --job-name=eagletui-@ID@ --output="$run/log.%n" --open-mode=append @SRUN@ /bin/sh "$run/job.sh" "$run" rank &
await $!
trap '' TERM
# What outlived the server would keep its memory: it goes while the nodes are still ours.
srun --quiet --overlap --jobid="$SLURM_JOB_ID" --ntasks-per-node=1 /bin/sh -c '
  for found in $(grep -lsxz "EAGLETUI_RUN=$1" /proc/[0-9]*/environ); do
    found=${found#/proc/} && kill -KILL "${found%/environ}"
  done' sh @ID@ 2>/dev/null
rm -f "$run/secret" "$run/secret.yaml"
put exit "$code $(stamp)"
exit "$code"
