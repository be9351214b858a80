"""MLPerf's logs, in and out: results as ``:::MLLOG`` lines, published logs of three formats as events."""
