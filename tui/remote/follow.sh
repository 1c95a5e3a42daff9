# Sends a growing file in frames, byte for byte, and says when it was truncated, replaced or removed.
# POSIX sh with dd, sleep, stat (or ls); sent by tui/core/host/follow.py, which sets:
#   EF_PATH    the file
#   EF_OFFSET  first byte wanted
#   EF_FILE    device:inode that EF_OFFSET belongs to, or empty
#   EF_WORD    a random word that ends each frame, so that a read cut short by a truncation cannot go unseen
#   EF_LIFE    seconds after which it ends by itself; the sender then asks again
# A frame: "KIND OFFSET COUNT SIZE FILE\n", COUNT raw bytes, "\nEF_WORD\n". KIND: O opened and I identity (the bytes are
# the first 1 KiB at most), D data, S nothing new, T truncated, R replaced, G gone, X cannot be read.

ef_frame() { printf '%s %s 0 %s %s\n\n%s\n' "$1" "$2" "$3" "${4:--}" "$EF_WORD"; }

ef_refuse() {
  ef_frame X 0 0 "$1"
  exit 0
}

ef_stat() { # file -> S_FILE S_SIZE
  S_FILE= S_SIZE=0
  if [ -n "$EF_STAT" ]; then
    _s=$(stat -L -c '%d:%i %s' "$1" 2>/dev/null) || return 1
    S_FILE=${_s% *} S_SIZE=${_s#* }
  else
    _s=$(ls -lniL "$1" 2>/dev/null) || return 1
    # shellcheck disable=SC2086
    set -- $_s
    S_FILE=0:$1 S_SIZE=$6
  fi
}

ef_bytes() { # count : from file 3 to standard output; no read of a regular file is short unless it shrinks
  [ "$1" -ge 65536 ] && dd bs=65536 count=$(($1 / 65536)) <&3 2>/dev/null
  [ $(($1 % 65536)) -gt 0 ] && dd bs=$(($1 % 65536)) count=1 <&3 2>/dev/null
  return 0
}

ef_head() { # kind : a frame with the first bytes, by which a file is known again
  _n=$E_SIZE
  [ "$_n" -gt 1024 ] && _n=1024
  E_HEADS=$_n
  E_HEAD=
  printf '%s %s %s %s %s\n' "$1" "$E_OFF" "$_n" "$E_SIZE" "$E_FILE"
  if [ "$_n" -gt 0 ]; then
    dd if="/proc/self/fd/3" bs="$_n" count=1 2>/dev/null
    E_HEAD=$(dd if="/proc/self/fd/3" bs="$_n" count=1 2>/dev/null)
  fi
  printf '\n%s\n' "$EF_WORD"
}

ef_same_head() {
  [ "$E_HEADS" = 0 ] || [ "$(dd if="/proc/self/fd/3" bs="$E_HEADS" count=1 2>/dev/null)" = "$E_HEAD" ]
}

ef_due() { # the first bytes are looked at once a second, and before a short head is made longer
  [ $((_tick % 10)) = 0 ] || { [ "$E_HEADS" -lt 1024 ] && [ "$E_SIZE" -gt "$E_OFF" ]; }
}

ef_open() { # opens the path as file 3 and seeks; false where it is not there
  [ -e "$EF_PATH" ] || return 1
  [ -d "$EF_PATH" ] && ef_refuse directory
  [ -f "$EF_PATH" ] || ef_refuse irregular
  [ -r "$EF_PATH" ] || ef_refuse denied
  exec 3< "$EF_PATH"
  ef_stat /proc/self/fd/3 || ef_refuse denied
  E_FILE=$S_FILE E_SIZE=$S_SIZE
  if [ -n "$EF_FILE" ] && [ "$EF_FILE" != "$E_FILE" ]; then
    ef_frame R 0 "$E_SIZE" "$E_FILE"
    E_OFF=0
  elif [ "$E_OFF" -gt "$E_SIZE" ]; then
    ef_frame T 0 "$E_SIZE" "$E_FILE"
    E_OFF=0
  fi
  EF_FILE=
  if [ "$E_OFF" -gt 0 ]; then
    dd bs=1048576 skip=$((E_OFF / 1048576)) count=0 <&3 2>/dev/null
    dd bs=1 skip=$((E_OFF % 1048576)) count=0 <&3 2>/dev/null
  fi
  ef_head O
}

ef_up() {
  read -r UP _ < /proc/uptime
  UP=${UP%%.*}
}

ef_main() {
  set -u
  set -f
  LC_ALL=C
  export LC_ALL
  unset IFS
  EF_STAT=
  stat -L -c %s / >/dev/null 2>&1 && EF_STAT=1
  ef_up
  _end=$((UP + EF_LIFE))
  E_OFF=$EF_OFFSET
  _gone=
  until ef_open; do
    [ -n "$_gone" ] || ef_frame G "$E_OFF" 0
    _gone=1 EF_FILE='' E_OFF=0
    sleep 0.2 2>/dev/null || sleep 1
    ef_frame S 0 0
    ef_up
    [ "$UP" -lt $_end ] || return 0
  done
  _gone=
  _idle=0
  _tick=0
  _max=262144 # a slow link shows its first bytes soon; a fast one starts few programs
  while :; do
    _tick=$((_tick + 1))
    ef_stat /proc/self/fd/3
    E_SIZE=$S_SIZE
    if [ "$E_SIZE" -lt "$E_OFF" ] || { ef_due && ! ef_same_head; }; then
      ef_frame T 0 "$E_SIZE" "$E_FILE"
      E_OFF=0
      ef_open || return 0
      continue
    fi
    if [ "$E_SIZE" -gt "$E_OFF" ]; then
      [ "$E_HEADS" -lt 1024 ] && ef_head I
      _n=$((E_SIZE - E_OFF))
      if [ $_n -gt $_max ]; then
        _n=$_max
        [ $_max -lt 4194304 ] && _max=$((_max * 2))
      fi
      printf 'D %s %s %s %s\n' "$E_OFF" "$_n" "$E_SIZE" "$E_FILE"
      ef_bytes $_n
      printf '\n%s\n' "$EF_WORD"
      E_OFF=$((E_OFF + _n))
      _idle=0
    else
      # All of this file is sent; is it still the one that the path names?
      _now=
      ef_stat "$EF_PATH" && _now=$S_FILE
      if [ "$_now" != "$E_FILE" ]; then
        # It was moved away or removed after the look at its size; what was written before that comes first.
        ef_stat /proc/self/fd/3
        [ "$S_SIZE" -gt "$E_OFF" ] && continue
      fi
      if [ -n "$_now" ]; then
        if [ -n "$_gone" ] || [ "$_now" != "$E_FILE" ]; then
          [ -n "$_gone" ] || EF_FILE=$E_FILE
          E_OFF=0
          ef_open || return 0
          _gone=
          continue
        fi
      elif [ -z "$_gone" ]; then
        ef_frame G "$E_OFF" "$E_SIZE"
        _gone=1
      fi
      # The first word that all is sent comes at once, then one a second: it also finds out that nobody listens.
      [ $((_idle % 10)) = 0 ] && ef_frame S "$E_OFF" "$E_SIZE" "$E_FILE"
      _idle=$((_idle + 1))
      sleep 0.1 2>/dev/null || sleep 1
    fi
    if [ $((_tick % 10)) = 0 ]; then
      ef_up
      [ "$UP" -lt $_end ] || return 0
    fi
  done
}
