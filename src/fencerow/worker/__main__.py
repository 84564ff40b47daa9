"""``python -m fencerow.worker``: a worker process started by a supervisor or another worker."""

from __future__ import annotations

import json
import os
import sys

from fencerow.worker import main
from fencerow.worker.settings import SETTINGS_VARIABLE, WorkerSettings

if __name__ == "__main__":
    sys.exit(main(WorkerSettings.from_json(json.loads(os.environ.pop(SETTINGS_VARIABLE)))))
