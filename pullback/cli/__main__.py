"""`python -m pullback.cli`."""

import sys

from pullback.cli import main

sys.exit(main())
