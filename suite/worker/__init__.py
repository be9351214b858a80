"""What runs inside the container: the protocol, the timing loop, and nothing of any workload."""
