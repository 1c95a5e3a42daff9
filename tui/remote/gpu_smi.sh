# GPU figures by nvidia-smi, for hosts whose Python has no NVML. Set before: period_ms, process_ms; wanted
# (fields, those that mean the same joined by |); without (fields that this nvidia-smi refused although it lists them,
# each between commas). Everything is started once; lines:
#   E words           no nvidia-smi
#   F field,field     the columns of G
#   M total available KiB of the host, before the row of a GPU that has no memory of its own
#   G row             of --query-gpu, or whatever nvidia-smi says instead
#   L line            of nvidia-smi -L, once, where MIG is on
#   P user|row        of --query-compute-apps: uuid, pid, MiB, program
#   Q status          the first list of processes is complete
#   X status          nvidia-smi ended
if ! command -v nvidia-smi >/dev/null 2>&1; then
  echo 'E nvidia-smi: command not found'
  exit 0
fi
# One unknown field fails a whole query, so only those are asked for that this version lists.
known=$(nvidia-smi --help-query-gpu 2>/dev/null)
fields=
add() {
  case $without in *",$1,"*) return 1 ;; esac
  case $known in *"\"$1\""*) fields=$fields${fields:+,}$1 ;; *) return 1 ;; esac
}
separators=$IFS
for names in $wanted; do
  IFS='|'
  for name in $names; do add "$name" && break; done
  IFS=$separators
done
[ -n "$fields" ] || fields=memory.total,index,uuid,name,memory.used,utilization.gpu,temperature.gpu,power.draw
printf 'F %s\n' "$fields"

form=--format=csv,noheader,nounits
apps=--query-compute-apps=gpu_uuid,pid,used_memory,process_name
# Output into a pipe may be held back until 4 KiB have come together.
by_line=
command -v stdbuf >/dev/null 2>&1 && by_line='stdbuf -oL'

# The name of the user that a process runs as, into $user; a process is started only for a user not seen before.
owner() {
  user= uid=
  [ -r "/proc/$1/status" ] || return 0
  while read -r key uid _; do
    [ "$key" = Uid: ] && break
    uid=
  done 2>/dev/null <"/proc/$1/status"
  case $uid in '' | *[!0-9]*) return 0 ;; esac
  eval "user=\${user_$uid-}"
  if [ -z "$user" ]; then
    user=$(id -nu "$uid" 2>/dev/null) || user=$uid
    eval "user_$uid=\$user"
  fi
}

{
  (
    nvidia-smi "$apps" "$form" 2>/dev/null
    printf '\nQ %s\n' "$?"
    exec $by_line nvidia-smi "$apps" "$form" -lms "$process_ms" 2>/dev/null
  ) &
  $by_line nvidia-smi "--query-gpu=$fields" "$form" -lms "$period_ms" 2>&1
  printf '\nX %s\n' "$?" # it may have ended in the middle of a row
  kill "$!" 2>/dev/null
} | {
  listed=
  while IFS= read -r line; do
    case $line in
    '') ;;
    GPU-* | MIG-*)
      pid=${line#*, }
      pid=${pid%%,*}
      user=
      case $pid in '' | *[!0-9]*) ;; *) owner "$pid" ;; esac
      printf 'P %s|%s\n' "$user" "$line"
      ;;
    'Q '*) printf '%s\n' "$line" ;;
    'X '*)
      printf '%s\n' "$line"
      break
      ;;
    *)
      case $line in
      '[N/A]'* | N/A* | '[Not Supported]'*)
        total= available=
        while read -r key value _; do
          case $key in MemTotal:) total=$value ;; MemAvailable:) available=$value && break ;; esac
        done 2>/dev/null </proc/meminfo
        printf 'M %s %s\n' "$total" "$available"
        ;;
      esac
      if [ -z "$listed" ]; then
        case $line in *', Enabled'*)
          listed=1
          nvidia-smi -L 2>/dev/null | while IFS= read -r each; do printf 'L %s\n' "$each"; done
          ;;
        esac
      fi
      printf 'G %s\n' "$line"
      ;;
    esac
  done
}
