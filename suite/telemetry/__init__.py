"""Facts about the machine, and clocks, counters and samples while a benchmark runs.

Host side: never imports a framework. A value that cannot be read is None with a reason.
"""
