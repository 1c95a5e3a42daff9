"""eagletui: a terminal control panel for people who tune SGLang servers on remote GPU hosts."""

__version__ = "0.1.0"
