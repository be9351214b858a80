"""Figures as SVG text with a table of the same numbers: pure functions, equal input gives equal bytes.

``lines``, ``dots`` and ``distribution`` draw numbers that they are given and know nothing of results;
``one_result``, ``results``, ``curves`` and ``scaling`` draw checked logs with them. Standard library only.
"""
