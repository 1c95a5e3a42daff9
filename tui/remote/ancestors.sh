# Which run a process on a GPU belongs to: its mark, and its ancestors. One line a fact, a key, a tab, a value. POSIX sh, sed, tr, head.
# In: PF_PIDS (words).
LC_ALL=C; export LC_ALL
for pid in $PF_PIDS; do
  chain=$pid parent=$pid depth=0
  while [ "$parent" -gt 1 ] && [ $depth -lt 40 ]; do
    up=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$parent/status" 2>/dev/null)
    [ -n "$up" ] || break
    chain="$chain $up" parent=$up depth=$((depth + 1))
  done
  printf 'chain\t%s\n' "$chain"
  mark=$(tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | sed -n 's/^EAGLETUI_RUN=//p' | head -n 1)
  [ -n "$mark" ] && printf 'mark\t%s %s\n' "$pid" "$mark"
done
exit 0
