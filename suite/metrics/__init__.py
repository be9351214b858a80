"""The metrics of a run from its log, each with its unit or a reason, its machine and container image."""
