"""python -m tools.site: build the documentation's web site."""

import sys

from tools.site.build import main

sys.exit(main())
