"""The `airunway` command."""


def main() -> None:
    raise SystemExit("not yet")
