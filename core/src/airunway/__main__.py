"""``python -m airunway``."""

from airunway.cli import main

main()
