"""What the machine was and did while a benchmark ran: facts, clocks, counters, samples.

Host side: never imports a framework. Every value that cannot be read is None with a reason.
"""
