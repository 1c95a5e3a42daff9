# What the processes of a run are doing right now: one line a fact. POSIX sh, no tool beyond coreutils and grep.
# In: LK_PID, the main process; LK_PORT. Processes are those of its session; whoever left it is not seen.
# proc PID PARENT CPU-TICKS READ-BYTES NAME / conn REMOTE (established, as /proc/net/tcp has it) / hz TICKS-A-SECOND
LC_ALL=C; export LC_ALL
ticks=$(getconf CLK_TCK 2>/dev/null) || ticks=100
echo "hz $ticks"
if read -r line 2>/dev/null <"/proc/$LK_PID/stat"; then
  set -f
  set -- ${line##*) }
  session=$4
  set +f
  for dir in /proc/[0-9]*; do
    read -r line 2>/dev/null <"$dir/stat" || continue
    name=${line#*(}; name=${name%)*}
    set -f
    set -- ${line##*) }
    set +f
    [ "$4" = "$session" ] || continue
    bytes=-
    while read -r key value; do
      [ "$key" = read_bytes: ] && bytes=$value
    done 2>/dev/null <"$dir/io"
    echo "proc ${dir#/proc/} $2 $((${12} + ${13})) $bytes $name"
  done
fi 2>/dev/null
if [ -n "$LK_PORT" ]; then
  hex=$(printf %04X "$LK_PORT")
  cat /proc/net/tcp /proc/net/tcp6 2>/dev/null |
    grep -E "^ *[0-9]+: [0-9A-F]+:$hex [0-9A-F]+:[0-9A-F]+ 01 " |
    while read -r number local remote rest; do echo "conn $remote"; done
fi
exit 0
