"""``python -m suite.worker``: reads its configuration from stdin; see :mod:`suite.worker.channel`."""

from suite.worker.main import main

raise SystemExit(main())
