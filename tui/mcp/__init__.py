"""eagletui as tools of the Model Context Protocol, for agents without a shell.

Knows the command line and nothing below it: each tool is a command with `--json`, so an agent, a script and a person
read the same words, and a tool can do nothing that a command cannot. No tool runs a shell.
"""
