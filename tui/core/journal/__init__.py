"""What was tried on hosts and what came of it, written by itself and by people: entries that are only ever added, and
what follows from them. Knows the stores below; not who displays it, and no launch knows it."""
