"""Parts of a file on a host: bytes by range, and where the lines around a byte begin and end."""

import re
from dataclasses import dataclass

from tui.core.errors import Slug, UsageError
from tui.core.link.scripts import shell_path
from tui.core.link.transport import Transport
from tui.core.text import one_line

MAX_BLOCK_BYTES = 4 << 20
_STEP_BYTES = 1 << 20
_SEARCH_TIMEOUT_S = 300.0  # a line may be as long as the file
_STAMPED = re.compile(rb"\n(?=\[?\d{4}-\d\d-\d\d)")

# For scripts: opens "$p" as file 3 and sets size and file, or says in one word why not.
OPEN = """\
if [ ! -e "$p" ]; then echo gone; exit; fi
if [ -d "$p" ]; then echo directory; exit; fi
if [ ! -f "$p" ]; then echo irregular; exit; fi
if [ ! -r "$p" ]; then echo denied; exit; fi
exec 3< "$p"
if s=$(stat -L -c '%s %d:%i' /proc/self/fd/3 2>/dev/null); then set -- $s
else set -- $(LC_ALL=C ls -lniL /proc/self/fd/3); set -- "$6" "0:$1"; fi
size=$1 file=$2
seek() {
  dd bs=1048576 skip=$(($1 / 1048576)) count=0 <&3 2>/dev/null
  dd bs=1 skip=$(($1 % 1048576)) count=0 <&3 2>/dev/null
}
bytes() {
  [ "$1" -ge 65536 ] && dd bs=65536 count=$(($1 / 65536)) <&3 2>/dev/null
  [ $(($1 % 65536)) -gt 0 ] && dd bs=$(($1 % 65536)) count=1 <&3 2>/dev/null
  return 0
}
"""


@dataclass(frozen=True)
class Block:
    """Bytes of a file, and the file they are of."""

    data: bytes
    offset: int  # of the first of them
    size: int  # bytes of the file when they were read
    file: str  # device:inode


def refused(host: str, path: str, why: str) -> UsageError:
    """Why a file cannot be read; `why` is the word of the script that looked."""
    problem, hint = {
        "gone": ("is not there", "check the path"),
        "directory": ("is a directory", "name a file"),
        "irregular": ("is not a regular file", "name a log file"),
        "denied": ("may not be read", "ask its owner for permission to read it"),
    }.get(why, ("cannot be read", "look at it on the host"))
    slug = Slug.UNKNOWN_FILE if why == "gone" else Slug.UNREADABLE_FILE
    return UsageError(f"{host}: {one_line(path)} {problem}", hint, slug=slug)


async def read_block(
    transport: Transport, path: str, offset: int, length: int, *, file: str | None = None
) -> Block | None:
    """Bytes of a file, fewer where it ends before; None where there is no such file.

    Args:
        offset: below 0 it counts from the end; before the beginning it is the beginning.
        length: 4 MiB at most; 0 asks for size and identity alone.
        file: device:inode the bytes must be of; of another file none are read.

    Raises:
        UsageError: it is not a file, or may not be read.
    """
    length = min(length, MAX_BLOCK_BYTES)
    only = f'[ "$file" = "{file}" ] || exit 0\n' if file is not None else ""
    done = await transport.run(
        f"p={shell_path(path)}\n{OPEN}"
        f"o={offset}\n"
        "[ $o -lt 0 ] && o=$((size + o))\n[ $o -lt 0 ] && o=0\n"
        f'echo "file $size $file $o"\n{only}seek $o\nbytes {length}\n',
        max_output_bytes=MAX_BLOCK_BYTES + 1024,
    )
    first, _, data = done.stdout.partition(b"\n")
    words = first.decode("ascii", "replace").split()
    if words == ["gone"]:
        return None
    try:
        return Block(data, int(words[3]), int(words[1]), words[2])
    except (IndexError, ValueError):
        raise refused(transport.host, path, words[0] if words else "") from None


def first_line(data: bytes, offset: int) -> int | None:
    """Where in a block the first line begins, None where none does; `offset` is the block's place in its file.

    The first with a stamp, where that is not far, so that no traceback is cut; of a line longer than the block the
    first frame after a carriage return.
    """
    if offset == 0:
        return 0
    stamped = _STAMPED.search(data, 0, len(data) // 2)
    if stamped is not None:
        return stamped.end()
    at = data.find(b"\n") + 1
    if 0 < at < len(data):
        return at
    at = data.find(b"\r") + 1
    return at if 0 < at < len(data) - 1 else None


async def _place(transport: Transport, path: str, script: str) -> int:
    """The number that a script says after `at`."""
    done = await transport.run(f"p={shell_path(path)}\n{OPEN}{script}", timeout_s=_SEARCH_TIMEOUT_S)
    words = done.stdout.decode("ascii", "replace").split()
    if words[:1] != ["at"]:
        raise refused(transport.host, path, words[0] if words else "")
    return int(words[1])


async def line_begin(transport: Transport, path: str, offset: int) -> int:
    """The byte after the last line end before `offset`, 0 where there is none. The host looks, step by step backwards."""
    if offset <= 0:
        return 0
    step = await _place(
        transport,
        path,
        f"k={(offset - 1) // _STEP_BYTES} n={(offset - 1) % _STEP_BYTES + 1}\n"
        "while [ $k -ge 0 ]; do\n"
        "  c=$(dd if=\"$p\" bs=1048576 skip=$k count=1 2>/dev/null | head -c $n | tr -cd '\\n' | wc -c)\n"
        "  [ $c -gt 0 ] && break\n"
        "  k=$((k - 1)) n=1048576\n"
        "done\necho at $k\n",
    )
    if step < 0:
        return 0
    begin = step * _STEP_BYTES
    block = await read_block(transport, path, begin, min(_STEP_BYTES, offset - begin))
    return begin + block.data.rfind(b"\n") + 1 if block is not None else begin


async def line_end(transport: Transport, path: str, offset: int) -> tuple[int, bool]:
    """Where the line that holds byte `offset` ends (after its line end), and whether it has one. The host looks."""
    end = offset + await _place(transport, path, f"seek {offset}\necho at $(head -n 1 <&3 | wc -c)\n")
    block = await read_block(transport, path, end - 1, 1) if end > offset else None
    return end, block is not None and block.data == b"\n"
