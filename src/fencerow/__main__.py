"""``python -m fencerow``: the same program as ``fencerow``."""

import sys

from fencerow.cli.main import main

sys.exit(main())
