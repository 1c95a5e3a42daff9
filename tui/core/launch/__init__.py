"""What to launch: profiles, SGLang's flags by version, posted commands. Knows no host."""
