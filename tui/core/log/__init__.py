"""What a log says: lines, phases, figures, and why a server died. Knows no host."""
