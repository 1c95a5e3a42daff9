"""The command line: one module a command, its options and what it does; knows the core, not the panel's insides."""
