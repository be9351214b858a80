"""The program inside the container: protocol, ranks and timing loop; nothing depends on a workload."""
