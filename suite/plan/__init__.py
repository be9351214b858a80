"""From options to a plan: Hydra composes the options, and this package validates them once."""
