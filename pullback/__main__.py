"""`python -m pullback`: the command line, where the command `pullback` is not on the path."""

import sys

from pullback.cli import main

if __name__ == "__main__":
    sys.exit(main())
