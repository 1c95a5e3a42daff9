"""What the first frame must not pay for."""

import subprocess
import sys


def test_the_panel_starts_without_ssh_profiles_and_sessions():
    program = (
        "import sys, tui.panel.app, tui.panel.screens.dashboard, tui.panel.screens.overview\n"
        "heavy = {'asyncssh', 'cryptography', 'pydantic', 'plotext', 'tree_sitter', 'yaml', 'tui.core.server.session', 'tui.core.sglang.tracker', 'h11'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
