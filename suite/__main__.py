"""``python -m suite``: see :mod:`suite.cli`."""

import sys

from suite.cli import main

sys.exit(main())
