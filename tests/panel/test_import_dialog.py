"""What the import dialog says about a pasted text."""

from tui.core.profiles.importing.shell_command import import_command
from tui.panel.screens.import_dialog import outcome_rows


def test_the_outcome_has_what_was_not_understood_and_no_secret() -> None:
    text = "source env.sh\nHF_TOKEN=hf_secret0 python -m sglang.launch_server --model-path /m --api-key sk-1 --tp $TP\n"
    rows = [row for row in outcome_rows(import_command(text, "/home/u")) if isinstance(row, list)]
    shown = ["".join(part for part, _ in row) for row in rows]
    assert shown[0] == "✓ 3 flags, 1 environment variable"
    assert "▲ not understood: line 1: source env.sh" in shown
    assert sum("source env.sh" in line for line in shown) == 1
    assert any("$TP is not set in this text" in line for line in shown)
    assert not any("hf_secret0" in line or "sk-1" in line for line in shown)
