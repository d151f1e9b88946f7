"""`python -m hesape` is the `hesape` command."""

from __future__ import annotations

import sys

from hesape.cli import main

if __name__ == "__main__":
    sys.exit(main())
