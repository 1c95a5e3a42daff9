# Looks through a file for lines and tells where they are; grep reads the file here, only places travel.
# POSIX sh with dd, stat (or ls), grep, awk, tail, wc; sent by tui/core/host/log_search.py, which sets:
#   ES_PATH    the file
#   ES_FILE    device:inode it must be, or empty
#   ES_FROM    first byte to be looked at
#   ES_COUNT   how many bytes from there, or empty for all there are
#   ES_NEEDLE  what is looked for; several texts or expressions stand on a line each
#   ES_FLAGS   of grep: F texts or E expressions, i where case does not count
#   ES_FIRST   hits told one by one as they come
#   ES_LAST    of those after them, how many at the end are told
#   ES_TEXT    characters of the line that are told with a hit, 0 for the place alone
# Answers, a line each. "O FILE SIZE": opened. "X WORD": cannot be read; "R FILE SIZE": another file. "B BYTE": places that
# follow count from here. "H LINE BYTE TEXT": a hit (the first one of its line). "C COUNT": lines with a hit since the last B, so far. "L ...": as H, one
# of the last. "F STATUS": grep failed. "E BYTE REST": the end: how far was looked, and how long the line without an end
# there is (65536: at least). On standard error, "P BYTE": how far it has looked so far.

es_refuse() {
  echo "X $1"
  exit 0
}

es_pos() { # -> POS, where file 3 stands: for whoever reads it, too
  POS=$ES_FROM
  while read -r _k _v; do [ "$_k" = pos: ] && POS=$_v; done 2>/dev/null < /proc/self/fdinfo/3
}

es_bytes() { # count : from file 3 on
  [ "$1" -ge 1048576 ] && dd bs=1048576 count=$(($1 / 1048576)) <&3 2>/dev/null
  [ $(($1 % 1048576)) -gt 0 ] && dd bs=$(($1 % 1048576)) count=1 <&3 2>/dev/null
  return 0
}

es_input() { if [ -n "$ES_COUNT" ]; then es_bytes "$ES_COUNT"; else cat <&3; fi; }

es_last() { # bytes before POS, 64 KiB at most
  _b=$((POS > 65536 ? POS - 65536 : 0))
  {
    dd bs=1048576 skip=$((_b / 1048576)) count=0 <&4 2>/dev/null
    dd bs=1 skip=$((_b % 1048576)) count=0 <&4 2>/dev/null
    dd bs=$((POS - _b)) count=1 <&4 2>/dev/null
  } 4< /proc/self/fd/3
}

es_rest() { # -> REST, length of the line without an end before POS
  REST=0
  [ "$POS" -gt 0 ] || return 0
  [ "$(es_last | tail -c 1 | wc -l)" -eq 0 ] && REST=$(($(es_last | tail -n 1 | wc -c)))
}

es_progress() {
  while sleep 0.2 2>/dev/null || sleep 1; do
    es_pos
    echo "P $POS" >&2
  done
}

# What grep says (LINE:BYTE:...), one hit a line: `first` are told at once, of the others the last `last`.
ES_TELL='
$1 == seen { next }
{
  seen = $1
  n++
  at = $1 " " $2
  if (text) at = at " " substr($0, length($1) + length($2) + 3, text)
  if (n <= first) {
    print "H " at
    fflush()
  } else if (last) ring[n % last] = at
  if (n % 50000 == 0) {
    print "C " n
    fflush()
  }
}
END {
  for (i = n - last > first ? n - last + 1 : first + 1; i <= n; i++) if (last) print "L " ring[i % last]
  print "C " n + 0
}'

# The same without grep, for one that knows no -b: BusyBox.
ES_LOOK='
BEGIN {
  many = split(ENVIRON["ES_NEEDLE"], needles, "\n")
  literal = index(ENVIRON["ES_FLAGS"], "F")
  fold = index(ENVIRON["ES_FLAGS"], "i")
  if (fold) for (i = 1; i <= many; i++) needles[i] = tolower(needles[i])
}
{
  line = fold ? tolower($0) : $0
  where = 0
  for (i = 1; i <= many; i++) {
    if (literal) at = index(line, needles[i])
    else at = match(line, needles[i])
    if (at && (!where || at < where)) where = at
  }
  if (where) printf "%d:%.0f:%s\n", NR, offset + (text ? 0 : where - 1), text ? substr($0, 1, text) : ""
  offset += length($0) + 1
}'

es_grep() { # extra flags of grep
  # shellcheck disable=SC2086
  if [ -n "$ES_COUNT" ]; then es_bytes "$ES_COUNT" | grep $ES_ONLY -a -b -n -$ES_FLAGS $1 -e "$ES_NEEDLE"
  else grep $ES_ONLY -a -b -n -$ES_FLAGS $1 -e "$ES_NEEDLE" <&3; fi
  _s=$?
  [ $_s -gt 1 ] && echo "F $_s" >&5
  return 0
}

es_stage() { # first last flags of grep
  es_pos
  echo "B $POS"
  _awk=awk
  case $3 in *-m*) case $(awk -W version 2>&1 </dev/null) in mawk*) _awk='awk -W interactive' ;; esac ;; esac
  { es_grep "$3" | $_awk -F: -v first="$1" -v last="$2" -v text="$ES_TEXT" "$ES_TELL"; } 5>&1
}

es_main() {
  set -u
  set -f
  LC_ALL=C
  export LC_ALL ES_NEEDLE ES_FLAGS
  unset IFS
  [ -e "$ES_PATH" ] || es_refuse gone
  [ -d "$ES_PATH" ] && es_refuse directory
  [ -f "$ES_PATH" ] || es_refuse irregular
  [ -r "$ES_PATH" ] || es_refuse denied
  exec 3< "$ES_PATH"
  if _s=$(stat -L -c '%d:%i %s' /proc/self/fd/3 2>/dev/null); then
    # shellcheck disable=SC2086
    set -- $_s
  else
    # shellcheck disable=SC2046
    set -- $(ls -lniL /proc/self/fd/3)
    set -- "0:$1" "$6"
  fi
  if { [ -n "$ES_FILE" ] && [ "$ES_FILE" != "$1" ]; } || [ "$ES_FROM" -gt "$2" ]; then
    echo "R $1 $2"
    exit 0
  fi
  echo "O $1 $2"
  dd bs=1048576 skip=$((ES_FROM / 1048576)) count=0 <&3 2>/dev/null
  dd bs=1 skip=$((ES_FROM % 1048576)) count=0 <&3 2>/dev/null
  es_progress >/dev/null &
  _p=$!
  ES_ONLY=
  [ "$ES_TEXT" = 0 ] && ES_ONLY=-o
  if [ "$(printf 'a\nxb\n' | grep -a -o -b -n -F -e b 2>/dev/null)" = 2:3:b ]; then
    # The first ones as they come; grep leaves file 3 after the last of them.
    if [ "$ES_FIRST" -gt 0 ] && [ -z "$ES_COUNT" ]; then
      es_stage "$ES_FIRST" 0 "-m $ES_FIRST --line-buffered"
      ES_FIRST=0
    fi
    [ "$ES_LAST" -gt 0 ] || [ "$ES_FIRST" -gt 0 ] && es_stage "$ES_FIRST" "$ES_LAST" ''
  else
    es_pos
    echo "B $POS"
    es_input | tr '\000' '\001' | awk -v text="$ES_TEXT" "$ES_LOOK" |
      awk -F: -v first="$ES_FIRST" -v last="$ES_LAST" -v text="$ES_TEXT" "$ES_TELL"
  fi
  kill $_p 2>/dev/null
  es_pos
  es_rest
  echo "E $POS $REST"
}
