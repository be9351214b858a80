"""What a log says of its run: every metric with its unit or the reason for its lack, machine and image."""
