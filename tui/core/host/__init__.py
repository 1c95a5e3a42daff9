"""What a host is made of: its GPUs, its driver, its Python. Must not know runs, servers or logs."""
