# How a host is placed between the nodes of a server: one line a fact, a key, a tab, a value.
# In: NL_NAME (of rank 0, as others know it), NL_TO (address of rank 0), NL_PORT, NL_PYTHON; the last three may be empty.
LC_ALL=C; export LC_ALL
fact() { printf '%s\t%s\n' "$1" "$2"; }
fact network "$(cat /proc/sys/kernel/random/boot_id 2>/dev/null) $(readlink /proc/self/ns/net 2>/dev/null)"
if command -v ip >/dev/null 2>&1; then
  ip -o addr show up 2>/dev/null | while read -r _ interface family address _; do
    case $family in inet | inet6) fact address "${interface%%@*} ${address%%/*}" ;; esac
  done
else
  for address in $(hostname -I 2>/dev/null); do fact address "? $address"; done
fi
if [ -n "$NL_NAME" ]; then
  getent ahosts "$NL_NAME" 2>/dev/null | while read -r address _; do fact resolved "$address"; done
fi
own=$(cat /proc/sys/kernel/hostname 2>/dev/null)
[ -z "$own" ] || getent ahosts "$own" 2>/dev/null | while read -r address _; do fact own "$address"; done
[ -n "$NL_TO" ] || exit 0
route=$(ip -o route get "$NL_TO" 2>/dev/null)
case $route in *' dev '*) route=${route#* dev }; fact route "${route%% *}" ;; esac
