#!/usr/bin/env bash
# A real Slurm on one machine: a controller and some nodes with fake GPUs, as root, without systemd and cgroups.
#
#   tests/slurm/setup.sh                            installs Debian's packages where they are missing
#   tests/slurm/setup.sh run [DIR [NODES [PORT]]]   runs it until its standard input ends, or until Ctrl-C; then ends all
#                                                   of it, its jobs too
#
# Names n1, n2, … are all this machine, told apart by ports: PORT (17000) is the controller's, the nodes' follow it. Each
# has eight `gpu:h200`, which are names of /dev/null. Once it runs, it prints the line that a shell needs for squeue and
# sbatch. Nothing outside DIR (/tmp/eagletui-slurm) is used, so several may run beside each other, on ports of their own.
set -euo pipefail

packages=(slurm-wlm munge)

install_missing() {
    local missing=() package
    for package in "${packages[@]}"; do
        [ "$(dpkg-query -Wf '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
    done
    [ "${#missing[@]}" -gt 0 ] || return 0
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq install -y --no-install-recommends "${missing[@]}" >&2 || {
        sleep 5 # package servers hiccup
        apt-get -qq update >&2
        apt-get -qq install -y --no-install-recommends "${missing[@]}" >&2
    }
}

configure() { # dir nodes port
    local host i
    host=$(hostname -s)
    cat <<CONF
ClusterName=eagletest
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$3
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$1/munge/sock
CryptoType=crypto/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerNode=64000
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
SlurmdParameters=config_overrides
ReturnToService=2
StateSaveLocation=$1/state
SlurmdSpoolDir=$1/spool.%n
SlurmctldPidFile=$1/slurmctld.pid
SlurmdPidFile=$1/slurmd.%n.pid
SlurmctldLogFile=$1/slurmctld.log
SlurmdLogFile=$1/slurmd.%n.log
SlurmctldTimeout=5
MessageTimeout=4
SlurmdTimeout=30
InactiveLimit=0
MinJobAge=300
KillWait=2
Waittime=0
MailProg=/bin/true
CONF
    for i in $(seq "$2"); do
        echo "NodeName=n$i NodeHostname=$host NodeAddr=127.0.0.1 Port=$(($3 + i)) CPUs=128 RealMemory=8000000 Gres=gpu:h200:8 State=UNKNOWN"
    done
    cat <<CONF
PartitionName=gpu Nodes=n[1-$2] Default=YES MaxTime=1-00:00:00 DefaultTime=60 State=UP PriorityTier=10 PreemptMode=off
PartitionName=spot Nodes=n[1-$2] MaxTime=1-00:00:00 DefaultTime=60 State=UP PriorityTier=1 PreemptMode=requeue GraceTime=3
PartitionName=single Nodes=n[1-$2] MaxNodes=1 MaxTime=60 DefaultTime=10 State=UP PriorityTier=10 PreemptMode=off
CONF
}

prepare() { # dir nodes port
    local i
    umask 022
    mkdir -p "$1"/{state,munge}
    chmod 755 "$1" "$1/munge"
    rm -rf "$1"/state/* "$1"/*.pid "$1"/munge/*
    head -c 1024 /dev/urandom >"$1/munge/key"
    chmod 400 "$1/munge/key"
    configure "$@" >"$1/slurm.conf"
    for i in 0 1 2 3 4 5 6 7; do ln -sfn /dev/null "$1/nvidia$i"; done
    for i in $(seq "$2"); do
        mkdir -p "$1/spool.n$i"
        echo "NodeName=n$i Name=gpu Type=h200 File=$1/nvidia[0-7]"
    done >"$1/gres.conf"
}

until_it() { # what must come true
    for _ in $(seq 300); do
        eval "$1" >/dev/null 2>&1 && return 0
        sleep 0.1
    done
    echo "gave up waiting for: $1" >&2
    return 1
}

end() { # dir
    local file pid
    trap '' INT TERM
    exec 2>/dev/null
    timeout 5 scancel -u "$USER" || true
    kill -9 $(jobs -p)
    # What was started again, steps, and what they started: all have this SLURM_CONF.
    for file in /proc/[0-9]*/environ; do
        pid=${file#/proc/} pid=${pid%/environ}
        if [ "$pid" != $$ ] && grep -qzxF "SLURM_CONF=$1/slurm.conf" "$file"; then
            kill -9 "$pid"
        fi
    done
    return 0
}

run() { # dir nodes port
    local i
    prepare "$@"
    trap "end '$1'" EXIT
    trap 'exit 0' INT TERM
    export SLURM_CONF=$1/slurm.conf USER=${USER:-$(id -un)}
    munged -F --force --key-file="$1/munge/key" --socket="$1/munge/sock" --pid-file="$1/munge/pid" \
        --log-file="$1/munge/log" --seed-file="$1/munge/seed" >"$1/munge/out" 2>&1 &
    until_it "[ -S '$1/munge/sock' ]"
    slurmctld -D -i >"$1/out" 2>&1 &
    for i in $(seq "$2"); do slurmd -D -N "n$i" >>"$1/out" 2>&1 & done
    until_it "[ \$(sinfo -h -N -p gpu -t idle | wc -l) = $2 ]"
    echo "export SLURM_CONF=$SLURM_CONF"
    while read -r _; do :; done
}

export PATH=$PATH:/usr/sbin:/sbin
case ${1:-} in
    "") install_missing ;;
    run) run "${2:-/tmp/eagletui-slurm}" "${3:-2}" "${4:-17000}" ;;
    *)
        sed -n '2,/^set/{/^set/d;p}' "$0"
        exit 2
        ;;
esac
