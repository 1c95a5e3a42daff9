"""CSV of nvidia-smi, of all ages and in all states of trouble."""

import pytest

from tui.core.host.gpu_cells import throttle_words
from tui.core.host.gpu_csv import parse_smi, smi_text
from tui.core.host.gpus import FIGURES, gpu_table

HEAD = "index, name, memory.used [MiB], memory.total [MiB], utilization.gpu [%]\n"


def test_header_outranks_query():
    sample, _ = parse_smi(HEAD + "0, A, 1 MiB, 2 MiB, 3 %\n", "name,index")
    assert (sample.gpus[0].index, sample.gpus[0].name, sample.gpus[0].utilization_pct) == (0, "A", 3)


def test_loop_with_index_keeps_the_last_whole_sample():
    text = HEAD + "".join(f"{i}, A, {tick} MiB, 9 MiB, 0 %\n" for tick in range(3) for i in range(2))
    sample, samples = parse_smi(text, None)
    assert samples == 3
    assert [gpu.memory_used_mib for gpu in sample.gpus] == [2, 2]
    sample, samples = parse_smi(text + "0, A, 7 MiB, 9 MiB, 0 %\n1, A, 7 Mi", None)
    assert samples == 3
    assert [gpu.memory_used_mib for gpu in sample.gpus] == [2, 2]


def test_half_a_row_in_the_only_sample_hides_nothing_else():
    sample, samples = parse_smi(HEAD + "0, A, 1 MiB, 9 MiB, 0 %\n1, A, 7", None)
    assert samples == 1
    assert [gpu.index for gpu in sample.gpus] == [0]


def test_repeated_header_begins_a_sample():
    one = "name, memory.used [MiB]\nA, 1 MiB\nA, 2 MiB\n"
    sample, samples = parse_smi(one + one.replace("1 MiB", "5 MiB"), None)
    assert samples == 2
    assert [gpu.memory_used_mib for gpu in sample.gpus] == [5, 2]


def test_names_with_timestamps_are_grouped_by_time():
    rows = [f"2025/11/24 14:08:{s:02}.{ms:03}, NVIDIA H200, {s}" for s in range(3) for ms in (100, 103, 107, 109)]
    sample, samples = parse_smi("\n".join(rows), "timestamp,name,utilization.gpu")
    assert samples == 3
    assert [gpu.utilization_pct for gpu in sample.gpus] == [2, 2, 2, 2]
    one_gpu, samples = parse_smi("\n".join(rows[::4]), "timestamp,name,utilization.gpu")
    assert samples == 3
    assert len(one_gpu.gpus) == 1


@pytest.mark.parametrize(
    ("cell", "health"),
    [
        ("[N/A]", None),
        ("N/A", None),
        ("[Not Supported]", None),
        ("[Insufficient Permissions]", None),
        ("", None),
        ("[Unknown Error]", "error"),
        ("ERR!", "error"),
        ("[GPU is lost]", "lost"),
        ("[GPU requires reset]", "requires_reset"),
        ("[Timeout]", None),
        ("[Requested functionality has been deprecated]", None),
    ],
)
@pytest.mark.fault(
    "G1", "`[N/A]`, `ERR!` and the like", sees="a dash in that cell", holds="never 0, and no other cell suffers"
)
def test_markers_are_none_in_their_cell_only(cell, health):
    sample, _ = parse_smi(HEAD + f"0, A, 5 MiB, 9 MiB, {cell}\n1, B, 1 MiB, 9 MiB, 4 %\n", None)
    first, second = sample.gpus
    assert (first.memory_used_mib, first.utilization_pct, first.health) == (5, None, health)
    assert (second.utilization_pct, second.health) == (4, None)


def test_marker_of_a_fan_is_no_illness():
    sample, _ = parse_smi("0, [Unknown Error], 4", "index,fan.speed,utilization.gpu")
    assert sample.gpus[0].health is None


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system", "gpu_lost"),
        ("Unable to determine the device handle for GPU0000:20:00.0: Unknown Error", "device_handle"),
        ("Unable to determine the device handle for GPU 0000:BA:00.0: Not Found", "device_handle"),
        ("Failed to initialize NVML: Driver/library version mismatch", "driver_mismatch"),
        ("Failed to initialize NVML: Unknown Error", "unreadable"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure", "unreadable"),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", "unreadable"),
        ("No devices were found", "no_devices"),
        ("No devices found.", "no_devices"),
        ('Field "clocks_event_reasons.x" is not a valid field to query.', "bad_query"),
        ("ERROR: Option --query-gpux is not recognized. Please run 'nvidia-smi -h'.", "bad_query"),
        ("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.", "bad_query"),
        ("bash: line 1: nvidia-smi: command not found", "nvidia_smi_missing"),
        ("zsh: command not found: nvidia-smi", "nvidia_smi_missing"),
        ("fish: Unknown command: nvidia-smi", "nvidia_smi_missing"),
        ("nvidia-smi: Command not found.", "nvidia_smi_missing"),
        ("sh: 1: nvidia-smi: not found", "nvidia_smi_missing"),
        ("bash: nvidia-smi: Kommando nicht gefunden.", "nvidia_smi_missing"),
        ("bash: nvidia-smi: コマンドが見つかりません", "nvidia_smi_missing"),
        ("Command 'nvidia-smi' not found, but can be installed with:", "nvidia_smi_missing"),
        ("-bash: /usr/bin/nvidia-smi: No such file or directory", "nvidia_smi_missing"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'nvidia-smi'", "nvidia_smi_missing"),
        ("'nvidia-smi' is not recognized as an internal or external command,", "nvidia_smi_missing"),
        ("bash: /usr/bin/nvidia-smi: Permission denied", "unreadable"),
        ("bash: /usr/bin/nvidia-smi: Input/output error", "unreadable"),
        ("", "unreadable"),
        ("hello, world", "unreadable"),
        (HEAD, "unreadable"),
    ],
)
@pytest.mark.parametrize("query", ["index,name,memory.used", "name", None])
def test_sentences(text, slug, query):
    if query == "name" and text == "hello, world":
        pytest.skip("a name may be anything")
    sample, samples = parse_smi(text + "\n", query)
    assert (sample.error, samples, sample.gpus) == (slug, 0, ())
    if text.strip():
        assert sample.detail


def test_exit_code_decides_where_the_text_does_not():
    assert parse_smi("", "index", 6)[0].error == "no_devices"
    assert parse_smi("etwas anderes\n", "index", 127)[0].error == "nvidia_smi_missing"


def test_noise_between_rows():
    text = HEAD + "\n".join(
        [
            "0, A, 5 MiB, 9 MiB, 1 %",
            "WARNING: infoROM is corrupted at gpu 0000:01:00.0",
            "Xid (PCI:0000:3b:00): 63, pid=1, Row Remapper: New row marked for remapping, reset gpu to activate.",
            "ECC error, GPU 1, row, 5, x",
            "1, A, 6 MiB, 9 MiB, 2 %",
        ]
    )
    sample, samples = parse_smi(text, None, 14)
    assert samples == 1
    assert [gpu.utilization_pct for gpu in sample.gpus] == [1, 2]


def test_lost_gpu_beside_others():
    text = (
        "0, 00000000:3B:00.0, 5\nUnable to determine the device handle for GPU 0000:5E:00.0: GPU is lost.  Reboot the"
        " system to recover this GPU\n2, 00000000:86:00.0, 6\n"
    )
    sample, _ = parse_smi(text, "index,pci.bus_id,memory.used")
    assert sample.error is None
    assert [(gpu.index, gpu.health) for gpu in sample.gpus] == [(0, None), (2, None), (None, "lost")]


def test_comma_in_a_name_and_units_in_the_header_only():
    sample, _ = parse_smi("name, memory.used [GiB]\nQuadro, special, 2\n", None)
    assert (sample.gpus[0].name, sample.gpus[0].memory_used_mib) == ("Quadro, special", 2048)


def test_files_of_other_systems():
    text = HEAD.replace("\n", "\r\n") + "0, A, 1 MiB, 2 MiB, 3 %\r\n"
    for data in (text.encode("utf-16"), text.encode("utf-8-sig"), text.encode()):
        assert parse_smi(smi_text(data))[0].gpus[0].utilization_pct == 3


def test_hostile_name():
    sample, _ = parse_smi("0, \x1b[31mred\x1b]0;title\x07, 3", "index,name,utilization.gpu")
    assert sample.gpus[0].name == "red"


def test_other_fields():
    sample, _ = parse_smi(
        "GPU-1, 00000000:01:00.0, 70.12 W, 350.00 W, 1980 MHz, 10501 MHz, 4, 16, Disabled, 0x0000000000000044, 61, 512",
        "--query-gpu=uuid,pci.bus_id,power.draw,power.limit,clocks.sm,clocks.mem,pcie.link.gen.current,"
        "pcie.link.width.current,mig.mode.current,clocks_throttle_reasons.active,temperature.gpu,memory.free",
    )
    gpu = sample.gpus[0]
    assert (gpu.power_w, gpu.power_limit_w, gpu.sm_clock_mhz, gpu.memory_clock_mhz) == (70.12, 350, 1980, 10501)
    assert (gpu.pcie_link_gen, gpu.pcie_link_width, gpu.mig_mode, gpu.temperature_c) == (4, 16, False, 61)
    assert gpu.throttle_reasons == ("power cap", "thermal, by hardware")
    assert gpu.memory_used_mib is None


def test_throttle_bits():
    assert throttle_words(0) == throttle_words(1) == ()
    assert throttle_words(0x8000 | 4) == ("power cap", "reason 0x8000")


def test_what_to_do_about_missing_columns():
    sample, _ = parse_smi("0, A, 3\n", None)
    assert sample.error == "unreadable"
    assert "header" in (sample.detail or "")
    sample, _ = parse_smi("0, 1, 2\n", "index,memory.used")
    assert sample.detail == "the rows have 3 cells, the query names 2"


def test_table_says_state_in_words_and_missing_as_a_dash():
    sample, _ = parse_smi(HEAD + "0, A, [N/A], 9216 MiB, [GPU requires reset]\n", None)
    head, row = gpu_table(sample).splitlines()
    assert "requires reset" in row
    assert "– / 9.0" in row
    assert " 0 " not in row.removeprefix("  0")
    assert head.index("name") == row.index("A")


@pytest.mark.parametrize(
    ("head", "cell", "state"), [("", "", "–"), (", clocks_event_reasons.active", ", 0x0000000000000000", "ok")]
)
def test_a_state_that_nothing_tells_is_no_ok(head, cell, state):
    sample, _ = parse_smi(f"index, name, memory.used [MiB]{head}\n0, H100, 1000 MiB{cell}\n", None)
    assert gpu_table(sample).splitlines()[1].split()[-1] == state


def test_no_two_figures_share_a_key_or_a_field_of_nvidia_smi():
    for names in (
        [figure.key for figure in FIGURES],
        [name for figure in FIGURES for name in figure.smi + figure.saved],
    ):
        assert len(names) == len(set(names))
