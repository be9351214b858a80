"""The images of the pairs: the lock of their bases, what resolves it, and what builds on it (host side)."""
