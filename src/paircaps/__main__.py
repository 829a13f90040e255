"""``python -m paircaps``: the same as the command ``paircaps``."""

from __future__ import annotations

import sys

from paircaps.cli import main

sys.exit(main())
