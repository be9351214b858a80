"""Matrices, sweeps and scaling sets: their cells, earlier results, and the execution of what is missing."""
