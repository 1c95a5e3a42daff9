"""Widgets of the log."""
