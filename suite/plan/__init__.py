"""From words to a plan: Hydra composes, this package validates once, and nothing is configured after it."""
