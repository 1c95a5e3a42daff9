"""`python3 -m tui.remote.loadgen bench.json`."""

import sys

from tui.remote.loadgen.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv))
