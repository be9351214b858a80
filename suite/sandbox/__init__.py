"""Runs named functions of the suite in a child process with limits on time and memory."""
