"""What crosses boundaries: frozen dataclasses and enumerations of runs, profiles, results, verdicts and experiments.

They import nothing but each other."""
