"""A matrix of runs: its cells, their earlier results, and the execution of the missing ones."""
