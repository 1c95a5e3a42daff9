"""What was measured, on this machine: kept, named, flattened, read from other tools. Must not know a host or a verdict."""
