"""Output that holds no figures we read: called by its name, with what it is good for and what to run instead."""

import re
from dataclasses import dataclass

_NVIDIA = "run `nvidia-smi` and save what it prints"
_AMD = "run `amd-smi metric --json`, or `rocm-smi --showmeminfo vram --showuse --json`"
_OTHER = "its figures cannot be read; `eagletui gpus HOST` asks a host with NVIDIA GPUs"


@dataclass(frozen=True)
class Named:
    """A form without figures.

    Attributes:
        kind: the command that prints it.
        mark: what it is recognised by.
        what: what it says.
        instead: what to run for figures.
    """

    kind: str
    mark: re.Pattern[str]
    what: str
    instead: str


# Each first that fits is what it is called, so what holds another form stands before that.
NAMED = tuple(
    Named(kind, re.compile(mark, re.M), what, instead)
    for kind, mark, what, instead in (
        (
            "python -m sglang.check_env",
            r"^[^\S\n]*(?:CUDA available: |sgl_kernel: |GPU models and configuration:)",
            "versions of software and names of GPUs",
            _NVIDIA,
        ),
        (
            "nvidia-smi topo -m",
            r"^[^\n]{0,60}?\bGPU0\s+(?:X|NV\d+|PIX|PXB|PHB|NODE|SYS)\s|^[^\n]{0,60}?\bLegend:\s+X\s+= Self",
            "how GPUs, network cards and CPUs are linked, good for placing ranks and NICs",
            _NVIDIA,
        ),
        (
            "nvidia-smi topo -p2p",
            r"\bGPU0\s+(?:X\s+)?(?:OK|CNS|GNS|TNS|NS)\s",
            "which GPUs reach each other directly",
            _NVIDIA,
        ),
        ("nvidia-smi nvlink", r"\bLink \d{1,2}: (?:[\d.]+ GB/s|<inactive>|Link is)", "the state of NVLink", _NVIDIA),
        (
            "nvidia-smi mig",
            r"\bGPU instance(?: profile)?s:|\bCompute instance(?: profile)?s:",
            "how GPUs are divided",
            _NVIDIA,
        ),
        ("nvidia-smi -h", r"NVIDIA System Management Interface -- v|--help-query-gpu ", "its options", _NVIDIA),
        ("nvidia-smi --version", r"^[^\n]{0,20}NVIDIA-SMI version\s+:", "the driver's version", _NVIDIA),
        ("nvidia-smi dmon", r"# {0,2}gpu\s+(?:pwr|sm|fb)\b", "the head of its columns only", _NVIDIA),
        ("nvidia-smi pmon", r"# {0,2}gpu\s+pid\s", "the head of its columns only", _NVIDIA),
        (
            "nvidia-smi --query-compute-apps",
            r"^[^\n]{0,80}?\bpid, ?(?:process_name|used_(?:gpu_)?memory|name)\b",
            "processes, but not on which GPU each is",
            "run `nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_memory --format=csv`",
        ),
        ("nvcc --version", r"Cuda compilation tools", "the version of the CUDA compiler", _NVIDIA),
        ("dcgmi", r"^[^\n]{0,20}#\s?Entity\s|\bdcgmi\b|DCGM_FI_DEV_", "figures of DCGM by field", _NVIDIA),
        (
            "tegrastats",
            r"\bRAM \d+/\d+MB [^\n]{0,200}GR3D_FREQ",
            "a Jetson's figures, whose memory is the host's",
            _OTHER,
        ),
        (
            "lspci",
            r"\b[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f] (?:3D|VGA|Display|Processing)",
            "which cards are plugged in",
            _NVIDIA,
        ),
        (
            "rocminfo",
            r"^[^\n]{0,20}(?:HSA Agents|ROCk module is loaded|HSA System Attributes)",
            "what ROCm knows of agents",
            _AMD,
        ),
        ("rocm-smi", r"ROCm System Management Interface", "none of the figures that are shown here", _AMD),
        ("amd-smi", r"\bAMDSMI Tool:|\bAMD-SMI \d|\bamd-smi\b", "none of the figures that are shown here", _AMD),
        (
            "xpu-smi",
            r"\bxpu-?smi\b|\bxpumcli\b|Intel XPU System Management|Device Name: Intel",
            "Intel GPUs, without figures by device",
            "run `xpu-smi dump -d -1 -m 0,1,2,3,18 -n 1`",
        ),
        ("npu-smi", r"\bnpu-smi\b|Hugepages-Usage", "Ascend NPUs, without figures by chip", "run `npu-smi info`"),
        (
            "tpu-info",
            r"\btpu-info\b|\bTPU Chips\b|Libtpu",
            "TPUs, without figures in use",
            "run `tpu-info` while the server runs",
        ),
        ("hl-smi", r"\bHL-SMI\b|\bhl-smi\b", "Gaudi cards, without figures", "run `hl-smi`"),
        ("mx-smi", r"\bmx-smi\b", "MetaX GPUs", _OTHER),
        ("mthreads-gmi", r"\bmthreads-gmi\b", "Moore Threads GPUs", _OTHER),
        ("cnmon", r"\bcnmon\b|\bCNMON\b", "Cambricon MLUs", _OTHER),
        ("ixsmi", r"\bixsmi\b|\bIX-ML\b", "Iluvatar GPUs", _OTHER),
        ("hy-smi", r"\bhy-smi\b|HCU System Management Interface|DCU System Management", "Hygon DCUs", _OTHER),
        ("radeontop", r"\bradeontop\b|Graphics pipe [\d.]+%", "an AMD card's engines", _AMD),
        ("intel_gpu_top", r"\bintel[_-]gpu[_-]top\b|\bIMC reads\b", "an Intel GPU's engines", _OTHER),
        ("nvidia-smi", r"NVIDIA-SMI \d", "the head of its table only", _NVIDIA),
    )
)


def named(text: str) -> list[Named]:
    """The forms without figures that a text holds."""
    return [form for form in NAMED if form.mark.search(text)]
