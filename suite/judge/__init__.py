"""The checker behind a wall: a child of its own, with limits, that answers questions about results."""
