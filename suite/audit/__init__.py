"""What an auditor and anybody gets: a verdict rule by rule, signed, and one sentence."""
