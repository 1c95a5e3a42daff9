"""Widgets of the bench screen."""
