"""Python environments made from locks: those of the frameworks and those of tools."""
