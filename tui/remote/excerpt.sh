# Reads a huge log here and sends what is unusual in it: its beginning and its end whole, and between them each line that
# holds none of the texts of a serving server's usual lines. POSIX sh with dd, grep, cut, awk, head, wc and stat (or ls); sent by
# tui/core/logs/excerpt.py after the functions of tui/core/logs/blocks.py, which have opened the file as file 3; it sets:
#   EX_FROM    first byte wanted, where a line begins
#   EX_WHOLE   so many bytes, or fewer, are sent whole
#   EX_HEAD    bytes of the beginning that are sent whole, up to the end of a line
#   EX_TAIL    the same of the end
#   EX_USUAL   texts of usual lines, one a line
#   EX_WORDS   texts that matter, one a line: where more is unusual than EX_MOST, lines with one of them, and those around
#   EX_DECODES, EX_PREFILLS  texts of decode and of prefill lines, one a line
#   EX_BEFORE  bytes before that end in which the newest of them are looked for
#   EX_MOST    bytes of unusual lines that are sent at most
#   EX_COUNTED a text of lines that are counted where they are left out
#   EX_BACK    a text of lines that count requests taken back, before their number: summed where they are left out
#   EX_WORD    a random word
# Answers. "O FILE SIZE": opened. "D BYTE COUNT", COUNT raw bytes, and EX_WORD on a line: bytes as they are. Between the two
# of them, in the order of the file, by pieces of it: "L LINE COUNTED TEXT": a line, counted from the beginning of the piece,
# and how many counted ones were left out since the one before; "R TIMES REQUESTS LINE TEXT": the newest of the lines with EX_BACK that
# were left out, how many there were before it, and of how many requests; "S LINES UNREAD COUNTED": the end of a piece, how many line ends it
# has, how many unusual lines were too many, and how many counted ones were left out since the last one; "F": grep failed.
# "U LINES NUMBER:TEXT": one of the newest eight decode lines, or the newest prefill line, of the EX_BEFORE bytes before the end that is sent
# whole, which have so many line ends, and its number among them.
# "Z SIZE": the end, and the size of the file now.

ex_cat() ( # byte, count: a part of the file, through a place in it of its own
  exec 3< /proc/self/fd/3
  seek "$1"
  bytes "$2"
)

ex_align() { # byte -> AT, where the first line at or after it begins; the byte itself where that is far
  AT=$1
  [ "$1" -gt "$EX_FROM" ] || return 0
  AT=$(($1 - 1 + $(ex_cat $(($1 - 1)) 1048576 | head -n 1 | wc -c)))
  [ $((AT - $1)) -lt 1048575 ] || AT=$1
}

ex_raw() { # byte, count
  echo "D $1 $2"
  ex_cat "$1" "$2"
  printf '\n%s\n' "$EX_WORD"
}

# Of lines that differ in numbers only, `often` a run are sent; more where something rare is just before.
EX_TELL='
function tell(line) {
  if (times) keep("R " times - 1 " " requests - newest_took " " newest)
  times = requests = 0
  if (line != "") keep(line)
}
function keep(line) {
  size += length(line) + 1
  if (words == "" || size <= most / 2) {
    out[++many] = line
    return
  }
  ring[++last] = line
  for (held += length(line) + 1; held > most / 2; unread++) {
    held -= length(ring[++dropped]) + 1
    delete ring[dropped]
  }
}
{
  at = index($0, ":")
  text = substr($0, at + 1)
  if (text == word) {
    lines = substr($0, 1, at - 1) - 2
    next
  }
  if (at == 0) next
  if (index(text, counted)) kind = counted
  else {
    kind = substr(text, 1, 2000)
    gsub(/[0-9a-f]*[0-9][0-9a-f]*/, "", kind)
  }
  if (index(text, "server_args=") || (!(kind in seen) && ++kinds > 50000)) {
    split("", seen)
    kinds = 0
  }
  count = ++seen[kind]
  if (count <= 16) near = 40
  else if (near > 0) near--
  else if (count > often) {
    if (kind == counted) passed++
    else if ((taken = index(text, back)) && !index(text, "Testing")) {
      newest_took = substr(text, taken + length(back)) + 0
      times++
      requests += newest_took
      newest = substr($0, 1, at - 1) " " text
    }
    next
  }
  tell("L " substr($0, 1, at - 1) " " passed + 0 " " text)
  passed = 0
  if (words == "" && size > most) {
    over = 1
    exit
  }
}
END {
  if (over) exit 3
  tell("")
  for (i = 1; i <= many; i++) print out[i]
  for (i = dropped + 1; i <= last; i++) print ring[i]
  if (lines == "") print "F"
  else printf "S %.0f %.0f %.0f\n", lines, unread, passed
}'

ex_tell() { # words
  awk -v words="$1" -v most="$EX_MOST" -v often=256 -v counted="$EX_COUNTED" -v back="$EX_BACK" -v word="$EX_WORD" "$EX_TELL"
}

ex_unusual() { # byte, count : lines with their numbers; awk takes long ones badly
  { ex_cat "$1" "$2"; printf '\n%s\n' "$EX_WORD"; } | grep -a -n -v -F -e "$EX_USUAL" | cut -b 1-65560
}

ex_piece() { # byte, count
  ex_unusual "$1" "$2" | ex_tell ''
  [ $? = 3 ] || return 0
  ex_unusual "$1" "$2" | grep -a -i -F -B 3 -A 20 -e "$EX_WORDS" -e ":$EX_WORD" | ex_tell 1
}

ex_pieces() { # the bytes where pieces begin, and the last end: all are read at once, and told in their order
  if [ $# -gt 2 ]; then
    _b=$1 _e=$2
    shift
    ex_pieces "$@" | { ex_piece "$_b" $((_e - _b)); cat; }
  elif [ $# = 2 ]; then
    ex_piece "$1" $(($2 - $1))
  fi
}

ex_newest() { # byte, count, texts, how many
  ex_cat "$1" "$2" | grep -a -n -F -e "$3" | tail -n "$4" | cut -b 1-8192
}

ex_recent() { # byte: the newest batches in the few megabytes before it
  _from=$(($1 - EX_BEFORE))
  [ "$_from" -gt "$EX_FROM" ] || _from=$EX_FROM
  _count=$(($1 - _from))
  _lines=$(ex_cat "$_from" "$_count" | wc -l)
  { ex_newest "$_from" "$_count" "$EX_PREFILLS" 1; ex_newest "$_from" "$_count" "$EX_DECODES" 8; } |
    awk -v lines="$_lines" '{ print "U " lines + 0 " " $0 }'
}

ex_main() {
  set -u
  set -f
  LC_ALL=C
  export LC_ALL
  unset IFS
  echo "O $file $size"
  if [ $((size - EX_FROM)) -le "$EX_WHOLE" ]; then
    ex_raw "$EX_FROM" $((size > EX_FROM ? size - EX_FROM : 0))
  else
    ex_align $((EX_FROM + EX_HEAD))
    _head=$AT
    ex_align $((size - EX_TAIL))
    _tail=$((AT > _head ? AT : _head))
    ex_raw "$EX_FROM" $((_head - EX_FROM))
    _n=$(getconf _NPROCESSORS_ONLN 2>/dev/null || nproc 2>/dev/null || echo 1)
    [ $(((_tail - _head) / 33554432)) -lt "$_n" ] && _n=$(((_tail - _head) / 33554432))
    [ "$_n" -gt 4 ] && _n=4
    [ "$_n" -ge 1 ] || _n=1
    EX_MOST=$((EX_MOST / _n))
    _i=1 _at=$_head
    set -- "$_head"
    while [ $_i -lt "$_n" ]; do
      ex_align $((_head + (_tail - _head) / _n * _i))
      set -- "$@" "$AT"
      _i=$((_i + 1))
    done
    ex_pieces "$@" "$_tail"
    ex_recent "$_tail"
    ex_raw "$_tail" $((size - _tail))
  fi
  if _s=$(stat -L -c '%s' /proc/self/fd/3 2>/dev/null); then :; else
    # shellcheck disable=SC2046
    set -- $(ls -lniL /proc/self/fd/3)
    _s=$6
  fi
  echo "Z $_s"
}
