"""Audits of results: the verdict rule by rule, its signature, replays, and the publishable sentence."""
