"""`python -m tui` is the command `eagletui`."""

from tui.cli import main

if __name__ == "__main__":
    main()
