"""Servers as jobs of a Slurm cluster: the batch script, what Slurm says of a job in our words, submit and stop.

Knows profiles, the logs' places on the shared disk, and scripts on the login host; Slurm is the truth, so there is no
queue, no placement and no accounting of ours. It knows no session, no group and no outcome of a server. docs/slurm.md.
"""
