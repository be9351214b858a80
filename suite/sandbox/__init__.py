"""Runs a named function of the suite in a child process with limits; knows nothing of what it runs."""
