"""Replays of a submission: whole repeats, first steps on a CPU, and the work under another name."""
