"""Saved and pasted output of GPU tools, in every form that people bring.

Knows forms of text (`reading.FORMS`); not hosts, and not how figures are shown.
"""
