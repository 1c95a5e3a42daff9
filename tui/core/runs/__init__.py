"""Process trees on a host: launching, watching and stopping ours, finding servers of others and who has a port. Knows
the helper's protocol; must not know logs or profiles, and of an engine only what its processes are called."""
