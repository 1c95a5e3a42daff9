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
        words: without one of them in a text it cannot be this; they are enough where there is no mark.
        mark: what it is recognised by.
        what: what it says.
        instead: what to run for figures.
    """

    kind: str
    words: tuple[str, ...]
    mark: re.Pattern[str] | None
    what: str
    instead: str

    def fits(self, text: str) -> bool:
        """Whether a text holds it."""
        return any(word in text for word in self.words) and (self.mark is None or self.mark.search(text) is not None)


# What holds another form stands before that: the first that fits is what a text is called.
NAMED = tuple(
    Named(kind, tuple(words.split("|")), re.compile(mark, re.M) if mark else None, what, instead)
    for kind, words, mark, what, instead in (
        (
            "python -m sglang.check_env",
            "sgl_kernel: |sglang-kernel: |CUDA Driver Version: |\nCUDA available: ",
            "",
            "versions of software, names of GPUs",
            _NVIDIA,
        ),
        (
            "python -m torch.utils.collect_env",
            "GPU models and configuration|Is CUDA available",
            "",
            "versions of software, names of GPUs",
            _NVIDIA,
        ),
        (
            "nvidia-smi topo -m",
            "GPU0|Legend:",
            r"^[^\n]{0,60}?\bGPU0\s+(?:X|NV\d+|PIX|PXB|PHB|NODE|SYS)\s|^[^\n]{0,60}?\bLegend:\s+X\s+= Self",
            "how GPUs, network cards and CPUs are linked, good for placing ranks and NICs",
            _NVIDIA,
        ),
        (
            "nvidia-smi topo -p2p",
            "GPU0",
            r"\bGPU0\s+(?:X\s+)?(?:OK|CNS|GNS|TNS|NS)\s",
            "which GPUs reach each other directly",
            _NVIDIA,
        ),
        (
            "nvidia-smi nvlink",
            "Link ",
            r"\bLink \d{1,2}: (?:[\d.]+ GB/s|<inactive>|Link is)",
            "the state of NVLink",
            _NVIDIA,
        ),
        (
            "nvidia-smi mig",
            "GPU instances:|GPU instance profiles:|Compute instances:|Compute instance profiles:",
            "",
            "how GPUs are divided",
            _NVIDIA,
        ),
        ("nvidia-smi -h", "NVIDIA System Management Interface -- v|--help-query-gpu ", "", "its options", _NVIDIA),
        ("nvidia-smi --version", "NVIDIA-SMI version", "", "the driver's version", _NVIDIA),
        ("nvidia-smi dmon", "# gpu", r"# gpu\s+(?!pid)", "the head of its columns only", _NVIDIA),
        ("nvidia-smi pmon", "# gpu", r"# gpu\s+pid\s", "the head of its columns only", _NVIDIA),
        (
            "nvidia-smi --query-compute-apps",
            "pid,",
            r"^[^\n]{0,80}?\bpid, ?(?:process_name|used_(?:gpu_)?memory|name)\b",
            "processes, but not on which GPU each is",
            "run `nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_memory --format=csv`",
        ),
        ("nvcc --version", "Cuda compilation tools", "", "the version of the CUDA compiler", _NVIDIA),
        ("dcgmi", "#Entity|# Entity|dcgmi|DCGM_FI_DEV_", "", "figures of DCGM by field", _NVIDIA),
        ("tegrastats", "GR3D_FREQ", "", "a Jetson's figures, whose memory is the host's", _OTHER),
        (
            "lspci",
            "3D controller|VGA compatible|Display controller|Processing accelerators",
            r"\b[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f] (?:3D|VGA|Display|Processing)",
            "which cards are plugged in",
            _NVIDIA,
        ),
        ("rocminfo", "HSA Agents|ROCk module is loaded|HSA System Attributes", "", "what ROCm knows of agents", _AMD),
        ("rocm-smi", "ROCm System Management Interface", "", "none of the figures that are shown here", _AMD),
        ("amd-smi", "AMDSMI Tool:|AMD-SMI |amd-smi", "", "none of the figures that are shown here", _AMD),
        (
            "xpu-smi",
            "xpu-smi|xpumcli|Intel XPU System Management|Device Name: Intel|XPUM_STATS|EU Array",
            "",
            "Intel GPUs, without figures by device",
            "run `xpu-smi dump -d -1 -m 0,1,2,3,18 -n 1`",
        ),
        ("npu-smi", "npu-smi|Hugepages-Usage", "", "Ascend NPUs, without figures by chip", "run `npu-smi info`"),
        (
            "tpu-info",
            "tpu-info|TPU Chips|Libtpu",
            "",
            "TPUs, without figures in use",
            "run `tpu-info` while the server runs",
        ),
        ("hl-smi", "HL-SMI|hl-smi", "", "Gaudi cards, without figures", "run `hl-smi`"),
        ("mx-smi", "mx-smi", "", "MetaX GPUs", _OTHER),
        ("mthreads-gmi", "mthreads-gmi", "", "Moore Threads GPUs", _OTHER),
        ("cnmon", "cnmon|CNMON", "", "Cambricon MLUs", _OTHER),
        ("ixsmi", "ixsmi|IX-ML", "", "Iluvatar GPUs", _OTHER),
        ("hy-smi", "hy-smi|HCU System Management Interface|DCU System Management", "", "Hygon DCUs", _OTHER),
        ("radeontop", "radeontop|Graphics pipe ", "", "an AMD card's engines", _AMD),
        ("intel_gpu_top", "intel_gpu_top|intel-gpu-top|IMC reads", "", "an Intel GPU's engines", _OTHER),
        ("nvidia-smi", "NVIDIA-SMI ", r"NVIDIA-SMI \d", "the head of its table only", _NVIDIA),
    )
)


def named(text: str) -> list[Named]:
    """The forms without figures that a text holds."""
    return [form for form in NAMED if form.fits(text)]
