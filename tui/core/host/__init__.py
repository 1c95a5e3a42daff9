"""What is on a host: GPUs, facts, runs, files that grow, and the look before a launch."""
