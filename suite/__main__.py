"""``python -m suite``: see :mod:`suite.cli`."""

import sys

problem = ""
if sys.version_info < (3, 10):  # noqa: UP036 - an older Python could not read the import below
    problem = "Python 3.11, such as .venv/bin/python, which the first make command makes; found an older one"
elif __package__ != "suite":
    problem = "`.venv/bin/python -m suite VERB` in the project's folder, found the path of the package"
if problem:
    print("suite: expected " + problem, file=sys.stderr)
    sys.exit(2)

from suite.cli import main  # noqa: E402

sys.exit(main())
