"""``python -m airunway_downloader``, which the image starts."""

from airunway_downloader.cli import main

if __name__ == "__main__":
    main()
