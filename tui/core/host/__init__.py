"""What a host is made of: its GPUs, its driver, its Python. Knows no run, no server and no log."""
