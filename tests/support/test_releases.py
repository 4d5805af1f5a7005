"""Which releases have which CRDs, read from an index."""

from __future__ import annotations

from pathlib import Path

from tests.support.releases import definition, stored_releases

INDEX = """# CRDs

## acme / parts

| release | date | commit | served versions, storage, schema hash | file |
|---|---|---|---|---|
| v2 | 2026-02-01 | b | v1 storage `2` | `acme/v2/parts.yaml` (1 KB) |

## acme / toys

| release | date | commit | served versions, storage, schema hash | file |
|---|---|---|---|---|
| v0 | 2025-12-01 | 0 | v1 storage `0` | *not stored* (`config/toys.yaml`) |
| v1 | 2026-01-01 | a | v1 storage `1` | `acme/v1/toys.yaml` (1 KB) |
| v1.1 | 2026-01-02 | a | v1 storage `1` | same as v1 |
| v2 | 2026-02-01 | b | v1 storage `1` | same as v1 |

## other / things

| release | date | commit | served versions, storage, schema hash | file |
|---|---|---|---|---|
| v1 | 2026-01-01 | a | v1 storage `1` | `other/v1/things.yaml` (1 KB) |
"""


def folder(tmp_path: Path) -> Path:
    (tmp_path / "INDEX.md").write_text(INDEX)
    for path, name in (
        ("acme/v1/toys", "toys.acme.io"),
        ("acme/v2/parts", "parts.acme.io"),
        ("other/v1/things", "things.other.io"),
    ):
        file = tmp_path / f"{path}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            f"---\nmetadata:\n  name: {name}\nspec:\n  conversion: {{strategy: Webhook}}\n  scope: Namespaced\n"
        )
    return tmp_path


def test_releases_with_the_same_files_are_one_and_in_order(tmp_path: Path) -> None:
    found = stored_releases(folder(tmp_path), {"toys.acme.io", "parts.acme.io"})
    toys, parts = tmp_path / "acme/v1/toys.yaml", tmp_path / "acme/v2/parts.yaml"
    assert [(release.label, dict(release.files)) for release in found] == [
        ("v0", {"toys.acme.io": None}),
        ("v1 to v1.1", {"toys.acme.io": toys}),
        ("v2", {"toys.acme.io": toys, "parts.acme.io": parts}),
    ]
    assert [release.is_kept for release in found] == [False, True, True]


def test_only_what_is_asked_for_counts(tmp_path: Path) -> None:
    (release,) = stored_releases(folder(tmp_path), {"things.other.io"})
    assert (release.upstream, release.label) == ("other", "v1")


def test_a_definition_has_no_conversion(tmp_path: Path) -> None:
    assert definition(folder(tmp_path) / "acme/v1/toys.yaml")["spec"] == {"scope": "Namespaced"}
