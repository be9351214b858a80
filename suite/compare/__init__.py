"""Two results beside each other, and one beside the history of its key: differences, ratios, verdicts."""
