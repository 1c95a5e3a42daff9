"""Programs for the host: POSIX shell, or Python with the standard library alone.

They import nothing of eagletui but one another; eagletui may import what is plain among them."""
