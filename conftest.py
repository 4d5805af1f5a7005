"""For every test of the workspace: how hypothesis runs.

No deadline: tests assert behaviour, and these machines are noisy. In CI the examples are the same in every run, so that
a change is judged by itself; everywhere else new ones are tried.
"""

import os

from hypothesis import settings

settings.register_profile("explore", deadline=None)
settings.register_profile("repeat", deadline=None, derandomize=True)
settings.load_profile("repeat" if os.environ.get("CI") else "explore")
