"""The container images of the pairs: the lock of base images, builds on them, and bundles (host side)."""
