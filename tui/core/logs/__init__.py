"""Logs of any size: followed, loaded in parts, searched on the host, filtered and folded into rows.

Knows files on hosts and records of lines; must not know runs, servers or widgets.
"""
