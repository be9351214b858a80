"""Submissions, and the names of the folders that a submitter's results and scaling sets are in."""

from __future__ import annotations

TREES = RESULTS, PRACTICE = "results", "practice"
SETS = "sets"  # also the name of the folder of sets among unsubmitted results
