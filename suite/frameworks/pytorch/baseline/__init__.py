"""Measurements of the machine itself, for `make baseline`: programs that print JSON lines."""
