# What a launch needs to know of a host: one line a fact, a key, a tab, a value. POSIX sh, no tool beyond coreutils.
# In: PF_CWD (absolute, ~/ or empty), PF_ENGINE (shell words), PF_IMAGE, PF_WRAPPER, PF_PROGRAM, PF_MODEL, PF_DRAFT, PF_REVISION, HF_*.
# The simulated host keeps its files below a directory of its own and says so in EAGLETUI_FS_ROOT.
LC_ALL=C; export LC_ALL
PF_TAB=$(printf '\t')
fact() { printf '%s\t%s\n' "$1" "$2"; }
first_line() { head -n 1 | tr -d '\r'; }

root=${EAGLETUI_FS_ROOT-}
fact home "$HOME"
fact user "$(id -un)"

case $PF_CWD in
  '') dir=$HOME ;;
  '~/'*) dir=$HOME/${PF_CWD#??} ;;
  *) dir=$root$PF_CWD ;;
esac
if cd -- "$dir" 2>/dev/null; then fact cwd there
elif [ -d "$dir" ]; then fact cwd closed
else fact cwd missing; fi

for pair in "wrapper:$PF_WRAPPER" "program:$PF_PROGRAM"; do
  word=${pair#*:}
  [ -n "$word" ] || continue
  case $word in '~/'*) word=$HOME/${word#??} ;; esac
  if command -v -- "$word" >/dev/null 2>&1; then fact "${pair%%:*}" there; else fact "${pair%%:*}" missing; fi
done
if [ "${PF_WRAPPER##*/}" = sudo ]; then
  if said=$("$PF_WRAPPER" -n true 2>&1 </dev/null); then
    fact sudo yes
    "$PF_WRAPPER" -n kill -0 $$ >/dev/null 2>&1 </dev/null && fact sudo_kill yes || fact sudo_kill no
  else
    fact sudo "no: $(printf '%s\n' "$said" | first_line)"
  fi
fi

if [ -n "${PF_ENGINE-}" ]; then
  limit=
  command -v timeout >/dev/null 2>&1 && limit='timeout 15'
  if said=$(eval "$limit $PF_ENGINE ps -q" 2>&1 >/dev/null </dev/null); then
    fact engine yes
    if eval "$limit $PF_ENGINE image inspect \"\$PF_IMAGE\"" >/dev/null 2>&1 </dev/null; then fact image there; else fact image absent; fi
  else
    fact engine "no: $(printf '%s\n' "$said" | first_line)"
  fi
fi

kill_user=$(cat /usr/lib/systemd/logind.conf.d/*.conf /etc/systemd/logind.conf /run/systemd/logind.conf.d/*.conf \
  /etc/systemd/logind.conf.d/*.conf 2>/dev/null |
  sed -n 's/^[[:space:]]*KillUserProcesses[[:space:]]*=[[:space:]]*\([A-Za-z0-9]*\).*/\1/p' | tail -n 1)
fact kill_user "$kill_user"
[ -e "/var/lib/systemd/linger/$(id -un)" ] && fact linger yes || fact linger no

# Where a launch would put its files, as er_init in eaglerun.sh has it: the first that takes any.
if [ -n "${EAGLETUI_STATE-}" ]; then set -- "$EAGLETUI_STATE"
elif [ -n "${EAGLETUI_HOME-}" ]; then set -- "$EAGLETUI_HOME/state"
else set -- ${XDG_STATE_HOME:+"$XDG_STATE_HOME/eagletui"} "$HOME/.local/state/eagletui" /var/tmp /tmp; fi
room=
for place; do
  while [ ! -d "$place" ] && [ -n "$place" ]; do place=${place%/*}; done
  [ -w "${place:-/}" ] || continue
  row=$(df -Pk "${place:-/}" 2>/dev/null | tail -n 1)
  room=${room:-$row}
  [ "$(printf %s "$row" | sed 's/.* \([0-9]*\)  *[0-9]*% .*/\1/')" = 0 ] && continue
  room=$row
  break
done
fact disk "$room"

# A model's directory or file, or its copy in the cache of Hugging Face.
model() {
  key=$1 path=$2 revision=$3
  case $path in
    '') return ;;
    /*) path=$root$path ;;
  esac
  if [ ! -e "$path" ]; then
    case $2 in
      /* | ./* | ../* | '~'* | */*/* | *' '*) fact "$key" missing; return ;;
      *://*) fact "$key" remote; return ;;
    esac
    hub=${HF_HUB_CACHE:-${HF_HOME:-$HOME/.cache/huggingface}/hub}
    case $hub in '~/'*) hub=$HOME/${hub#??} ;; esac
    repo=$root$hub/models--$(printf %s "$2" | sed 's|/|--|g')
    [ -d "$repo" ] || repo=$hub/models--$(printf %s "$2" | sed 's|/|--|g')
    ref=$revision
    [ -r "$repo/refs/${revision:-main}" ] && ref=$(cat "$repo/refs/${revision:-main}")
    path=$repo/snapshots/$ref
    if [ -z "$ref" ] || [ ! -d "$path" ]; then
      fact "$key" absent
      while [ -n "$hub" ] && [ ! -d "$hub" ]; do hub=${hub%/*}; done
      fact "$key.disk" "$(df -Pk "${hub:-/}" 2>/dev/null | tail -n 1)"
      return
    fi
    fact "$key" cached
  elif [ ! -d "$path" ]; then
    if [ -r "$path" ]; then fact "$key" file; else fact "$key" closed; fi
    fact "$key.ls" "$(ls -lLn -- "$path" 2>/dev/null)"
    return
  elif [ ! -r "$path" ] || [ ! -x "$path" ]; then
    fact "$key" closed
    return
  else
    fact "$key" there
  fi
  [ -r "$path/config.json" ] && fact "$key.config" "$(head -c 262144 "$path/config.json" | tr -d '\n\r\t')"
  for index in model.safetensors.index.json pytorch_model.bin.index.json; do
    [ -r "$path/$index" ] || continue
    tr ',{}' '\n\n\n' <"$path/$index" |
      sed -n -e 's/^.*:[[:space:]]*"\([^"]*\.safetensors\)".*$/\1/p' -e 's/^.*:[[:space:]]*"\([^"]*\.bin\)".*$/\1/p' |
      sort -u | sed "s|^|$key.need$PF_TAB|"
    break
  done
  ls -lLn -- "$path" 2>/dev/null | sed "s|^|$key.ls$PF_TAB|"
  # Two hosts with the same sum, and weights of the same size, have the same model.
  fact "$key.sum" "$(cat "$path/config.json" "$path"/*.index.json 2>/dev/null | cksum)"
  # How much of the first and the last weight file the page cache holds; fincore (util-linux) reads nothing of them.
  first='' last=''
  for file in "$path"/*.safetensors; do
    [ -f "$file" ] || continue
    last=$file first=${first:-$file}
  done
  if [ -n "$first" ] && command -v fincore >/dev/null 2>&1; then
    fincore -b -n -r -o RES,SIZE "$first" "$last" 2>/dev/null | sed "s|^|$key.cache$PF_TAB|"
  fi
  for file in "$path"/*.safetensors "$path"/*.bin "$path"/*.gguf "$path/config.json"; do
    [ -e "$file" ] && [ ! -r "$file" ] && fact "$key.closed" "${file##*/}"
  done
}
model model "$PF_MODEL" "$PF_REVISION"
model draft "$PF_DRAFT" ''
exit 0
