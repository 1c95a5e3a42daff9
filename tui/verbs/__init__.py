"""What the commands of the command line do; `tui.cli` only parses them."""
