"""Comparisons: two results with each other, one result with its history, and results as summary rows."""
