"""What is asked once per host, in one script call: hardware, driver, topology, SGLang and torch.

GPUs come from NVML in the host entry's Python, else from nvidia-smi; topology and peer access from nvidia-smi alone.
Whatever is missing there is None here, never an error: only a link that fails raises.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace

from tui.core.host.gpus import MIB, HostFacts
from tui.core.link.programs import program
from tui.core.link.scripts import shell_path
from tui.core.link.transport import Transport
from tui.core.text import one_line, sanitize

TIMEOUT_S = 120.0
_MARK = "@@eagletui "
_FIELDS = "driver_version,persistence_mode,memory.total"  # the name comes last: it may hold commas

_SCRIPT = """
export LC_ALL=C
section() {{ printf '\\n{mark}%s\\n' "$1"; }}
# A driver that hangs must not hold up the rest.
limited() {{ if command -v timeout >/dev/null 2>&1; then timeout 20 "$@"; else "$@"; fi; }}
facts() {{
limited {python} -u - <<'EAGLETUI_FACTS' 2>&1
{facts}EAGLETUI_FACTS
}}
section home; printf '%s\\n' "$HOME"
section user; id -un
section hostname; uname -n
section memory
while read -r key value _; do [ "$key" = MemTotal: ] && echo "$value" && break; done </proc/meminfo
status=127 said=
if command -v {python} >/dev/null 2>&1; then said=$(facts); status=$?; fi
section python; printf '%s\\n' "$said"
section status; echo "$status"
command -v nvidia-smi >/dev/null 2>&1 || exit 0
section topology; limited nvidia-smi topo -m
[ $? -eq 124 ] && exit 0
section peers; limited nvidia-smi topo -p2p r
case $said in *'"gpus"'*) exit 0 ;; esac
section rows
limited nvidia-smi --query-gpu=compute_cap,{fields},name --format=csv,noheader,nounits || {{
  section old; limited nvidia-smi --query-gpu={fields},name --format=csv,noheader,nounits
}}
section table; limited nvidia-smi
exit 0
"""


async def host_facts(transport: Transport, python: str) -> HostFacts:
    """Asks a host for its facts. Raises HostError, LinkLost, TimedOut.

    Args:
        python: the interpreter that has SGLang, as the host entry names it.
    """
    done = await transport.run(facts_script(python), timeout_s=TIMEOUT_S, alone=True)
    return read_facts(done.stdout.decode("utf-8", "replace"), python)


def facts_script(python: str) -> str:
    """The script; its output is read by `read_facts`."""
    return _SCRIPT.format(mark=_MARK, python=shell_path(python), facts=program("host_facts.py"), fields=_FIELDS)


def read_facts(output: str, python: str) -> HostFacts:
    """Facts from the output of `facts_script`."""
    sections: dict[str, str] = {}
    for part in output.split(f"\n{_MARK}")[1:]:
        name, _, text = part.partition("\n")
        sections.setdefault(name.strip(), text.strip("\n"))

    def word(name: str) -> str | None:
        return one_line(sections.get(name, ""), 200) or None

    memory = sections.get("memory", "").strip()
    topology = sections.get("topology", "")
    facts = HostFacts(
        home=word("home"),
        user=word("user"),
        hostname=word("hostname"),
        cpu_memory_total_mib=int(memory) / 1024 if memory.isdigit() else None,
        topology=_plain(topology) if "GPU0" in topology else None,
        peer_access=_peer_access(sections.get("peers", "")),
    )
    documents, words = _documents(sections.get("python", ""))
    facts = _with_python(facts, python, documents, words, sections.get("status", "").strip())
    nvml = next((document for document in documents if isinstance(document.get("gpus"), list)), None)
    return _with_nvml(facts, nvml) if nvml else _with_smi(facts, sections)


def with_container(facts: HostFacts, inside: HostFacts, name: str) -> HostFacts:
    """What the host lacks, from a container on it; the facts as they are where that has no SGLang either."""
    if inside.sglang is None:
        return facts
    if facts.python is None:
        facts = replace(facts, python=inside.python)
    if not facts.gpu_names:
        figures = (
            "gpu_names",
            "compute_capabilities",
            "memory_total_mib",
            "driver",
            "cuda",
            "persistence_mode",
            "topology",
        )
        facts = replace(facts, **{figure: getattr(inside, figure) for figure in figures})
    return replace(facts, sglang=inside.sglang, torch=inside.torch, container=name)


def _documents(text: str) -> tuple[list[Mapping[str, object]], list[str]]:
    """JSON objects among the lines, and the lines that are none."""
    documents: list[Mapping[str, object]] = []
    words: list[str] = []
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = line
        if isinstance(value, dict):
            documents.append(value)
        elif isinstance(value, str) and value.strip():
            words.append(value)
    return documents, words


def _with_python(
    facts: HostFacts, asked: str, documents: list[Mapping[str, object]], words: list[str], status: str
) -> HostFacts:
    found = next((document for document in documents if "version" in document), None)
    if found is None:
        if status == "127":
            error = f"{one_line(asked, 120)} was not found"
        elif status == "124":
            error = f"{one_line(asked, 120)} did not answer within 20 s"
        else:
            said = one_line(words[-1], 160).removeprefix(f"{asked}: ") if words else f"ended with status {status}"
            error = f"{one_line(asked, 120)}: {said}"
        return replace(facts, python_error=error)
    version = _word(found.get("version"))
    if version and tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < (3, 8):
        error = f"{one_line(asked, 120)} is Python {version}; 3.8 or newer is needed"
        return replace(facts, python_error=error)
    return replace(
        facts,
        python=_word(found.get("python")) or asked,
        sglang=_word(found.get("sglang")),
        torch=_word(found.get("torch")),
    )


def _with_nvml(facts: HostFacts, nvml: Mapping[str, object]) -> HostFacts:
    listed = nvml.get("gpus")
    gpus = [gpu for gpu in listed if isinstance(gpu, dict)] if isinstance(listed, list) else []
    cuda = nvml.get("cuda")
    modes = {gpu.get("persistence") for gpu in gpus}
    return replace(
        facts,
        gpu_names=tuple(_word(gpu.get("name")) or "" for gpu in gpus),
        compute_capabilities=tuple(
            f"{pair[0]}.{pair[1]}" if isinstance(pair, list) and len(pair) == 2 else ""
            for pair in (gpu.get("capability") for gpu in gpus)
        ),
        memory_total_mib=tuple(
            total / MIB if isinstance(total, int) and not isinstance(total, bool) else None
            for total in (gpu.get("memory") for gpu in gpus)
        ),
        driver=_word(nvml.get("driver")),
        cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if isinstance(cuda, int) else None,
        persistence_mode=False if 0 in modes else True if 1 in modes else None,
    )


def _with_smi(facts: HostFacts, sections: Mapping[str, str]) -> HostFacts:
    rows = [line.split(", ", 4) for line in sections.get("rows", "").splitlines()]
    if "old" in sections:
        rows = [["", *line.split(", ", 3)] for line in sections["old"].splitlines()]
    rows = [row for row in rows if len(row) == 5 and re.match(r"\d+\.\d|\[|$", row[0])]
    modes = {row[2] for row in rows}
    driver = next((row[1] for row in rows if re.match(r"\d", row[1])), None)
    cuda = re.search(r"CUDA (?:[A-Z]+ )?Version ?: *(\d+\.\d+)", sections.get("table", ""))
    return replace(
        facts,
        gpu_names=tuple(one_line(row[4], 100) for row in rows),
        compute_capabilities=tuple(row[0] if re.fullmatch(r"\d+\.\d+", row[0]) else "" for row in rows),
        memory_total_mib=tuple(float(row[3]) if row[3].isdigit() else None for row in rows),
        driver=one_line(driver, 40) if driver else None,
        cuda=cuda.group(1) if cuda else None,
        persistence_mode=False if "Disabled" in modes else True if "Enabled" in modes else None,
    )


def _word(value: object) -> str | None:
    return (one_line(value, 200) or None) if isinstance(value, str) else None


def _plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in sanitize(text).splitlines()).strip("\n")


def _peer_access(matrix: str) -> bool | None:
    """Whether every pair of GPUs can read each other's memory, by `nvidia-smi topo -p2p r`; None with less than two."""
    cells = [
        cell
        for line in sanitize(matrix).splitlines()
        if re.match(r"\s*GPU\d+\s+(?!GPU)\S", line)
        for cell in line.split()[1:]
        if cell != "X"
    ]
    return all(cell == "OK" for cell in cells) if cells else None
