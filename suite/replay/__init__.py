"""A submission run again: repeats, first steps on a processor, the same work under another name."""
