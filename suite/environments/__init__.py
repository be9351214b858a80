"""Python environments made from locks: the frameworks' own, and those of tools."""
