"""The program of the image: ``python3 -I /opt/airunway/airunway_downloader``, and ``python -m airunway_downloader``.

The interpreter is isolated: it takes no code from folders that the environment or the working directory name. Of a
package that is started as a folder, its parent belongs on the path instead of the folder itself.
"""

import os
import sys

if not __package__:
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from airunway_downloader.environment import keep_own

if __name__ == "__main__":
    keep_own(os.environ)
    from airunway_downloader.cli import main

    main()
