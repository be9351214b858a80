"""``python -m suite quote``: print the sentence that may be published of an accepted result with a score.

See rules/1.0/PUBLISHING.md. Exit codes: 0, 1 where there is none to publish, 2 usage or internal error.
"""

from __future__ import annotations

import argparse
import sys

from suite.cli.audit import judged_at


def main(args: argparse.Namespace) -> int:
    """Print the sentence; 0, or 1 if the result has none."""
    from suite.audit.quote import sentence
    from suite.audit.show import verdict
    from suite.log.safe import safe

    value = judged_at(args.result, args.submissions)
    if value["quote"] is None:
        print(f"quote: {safe(value['why_no_quote'], 1000)}", file=sys.stderr)
        print(f"quote: {verdict(value)}", file=sys.stderr)
        return 1
    print(sentence(value["quote"]))
    return 0
