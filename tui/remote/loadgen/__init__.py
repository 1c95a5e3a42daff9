"""The load generator: runs on the host of the server, alone, on Python 3.8 and its standard library (protocol.py).

Its modules travel to the host as they lie here; eagletui itself may import the plain ones, they import nothing of it."""
