"""Samples: manifests that come with a provider, what each shows, and how to tell that it has shown it.

They lie in the folder ``samples/`` of the provider's package, with an ``index.toml`` that lists them: the folder is
applied as it is (``kubectl apply -f samples/``), and kubectl takes whatever ends with ``.yaml`` for a manifest.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import resources
from pathlib import Path

import yaml

from airunway.plugins.registry import Distribution
from airunway.resource import Resource, dig
from airunway_testing.sandbox.errors import SandboxError


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A manifest, what it shows, and how to tell that it has shown it.

    `phase` and `says` are what the status must come to, and `share` is the percent of its group's requests where there
    is a Gateway; a sample that is to be `refused` never gets a status. One that has to have a node `alone` is applied
    before the others, which would each take a part of one.
    """

    path: Path
    shows: str
    phase: str = "Running"
    says: str = ""
    refused: bool = False
    alone: bool = False
    share: int = 0

    @property
    def name(self) -> str:
        """That of its ModelDeployment, too."""
        return self.path.stem

    def is_shown_by(self, deployment: Resource) -> bool:
        status = deployment.get("status") or {}
        shared = not self.share or dig(status, "gateway", "group", "share") == self.share
        return status.get("phase") == self.phase and self.says in str(status.get("message")) and shared


_INDEX = "index.toml"
_FORMER = "index.yaml"
"""What the index was called until kubectl was to apply the folder."""
_FIELDS = frozenset(field.name for field in fields(Sample)) - {"path"} | {"file"}

TYPO = Sample(
    path=Path(str(resources.files("airunway_testing.sandbox"))) / "samples" / "typo.yaml",
    shows="a misspelt field: the API server refuses it",
    refused=True,
)
"""Refused whatever providers there are."""


CACHED = (
    Sample(
        path=TYPO.path.with_name("shared-8b.yaml"),
        shows="weights on a shared claim: fetched once, by a Job, and mounted read-only",
        share=90,
    ),
    Sample(
        path=TYPO.path.with_name("shared-8b-canary.yaml"),
        shows="a second version beside it, with the same weights: nothing is downloaded again",
        share=10,
    ),
)
"""Shown where the sandbox has storage and a provider that is selected by itself."""


def at_gateway(sample: Sample) -> Sample:
    """A sample where there is a Gateway: it shows its share of the requests, too."""
    return replace(sample, shows=f"{sample.shows}; {sample.share} % of the requests") if sample.share else sample


def without_gateway(sample: Sample, folder: Path) -> Sample:
    """A sample where there is no Gateway: its manifest, without what asks for a route, is written into a folder."""
    folder.mkdir(exist_ok=True)
    manifest = yaml.safe_load(sample.path.read_text(encoding="utf-8"))
    manifest["spec"].pop("gateway", None)
    path = folder / sample.path.name
    path.write_text(yaml.safe_dump(manifest, sort_keys=False), encoding="utf-8")
    return replace(sample, path=path, share=0)


MODEL = "acme/tiny"
"""The model of the sandbox's registry."""


DOCUMENTED = (
    "Qwen/Qwen3-8B",
    "ggml-org/gemma-3-1b-it-GGUF/gemma-3-1b-it-Q8_0.gguf",
    "meta-llama/Llama-3.1-8B-Instruct",
)
"""The models that the repository's ``samples/model-cache`` fetches from the hub, whichever providers are installed."""


def write_registry_samples(folder: Path, registry: str) -> None:
    """Write the manifests for the sandbox's registry, with its address, into a folder."""
    folder.mkdir(exist_ok=True)
    for path in (TYPO.path.parent / "registry").glob("*.yaml"):
        text = path.read_text(encoding="utf-8").replace("registry.example", registry)
        (folder / path.name).write_text(text, encoding="utf-8")


def samples_of(provider: Distribution) -> tuple[Sample, ...]:
    """The samples that came with a provider, in the order of its index; none if it has no folder for them."""
    folder = _folder(provider)
    return samples_in(folder) if any((folder / name).is_file() for name in (_INDEX, _FORMER)) else ()


def manifests_of(provider: Distribution) -> tuple[Path, ...]:
    """All manifests that came with a provider, by file name: those too that its index does not list."""
    return tuple(sorted(_folder(provider).glob("*.yaml")))


def _folder(provider: Distribution) -> Path:
    package = provider.entry_point.module.partition(".")[0]
    return Path(str(resources.files(package))) / "samples"


def samples_in(folder: Path) -> tuple[Sample, ...]:
    """The samples of a folder. Raises SandboxError for an index that is wrong, naming file and entry."""
    index, former = folder / _INDEX, folder / _FORMER
    if former.is_file():
        text = f"kubectl takes it for a manifest: write {_INDEX} instead, with a table [[sample]] for each entry"
        raise SandboxError(f"{former}: {text}")
    try:
        found = tomllib.loads(index.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SandboxError(f"{index}: {error}") from error
    entries = found.get("sample")
    if not isinstance(entries, list) or len(found) != 1:
        raise SandboxError(f"{index}: tables [[sample]] are expected, and nothing else")
    return tuple(_sample(index, position, entry) for position, entry in enumerate(entries))


def secrets_of(samples: Sequence[Sample]) -> list[str]:
    """The Secrets that samples name for a gated model. What is in them does not matter: nothing is downloaded."""
    return sorted({name for sample in samples for name in _secrets(sample)})


def _secrets(sample: Sample) -> Iterator[str]:
    for document in yaml.safe_load_all(sample.path.read_text(encoding="utf-8")):
        if name := dig(document, "spec", "secrets", "huggingFaceToken"):
            yield str(name)


def models_of_hub(samples: Sequence[Sample]) -> list[str]:
    """Ids of all models that the sandbox's hub has."""
    return [MODEL, *DOCUMENTED, *models_of(samples)]


def models_of(samples: Sequence[Sample]) -> list[str]:
    """Ids of the models that samples serve from the hub."""
    return sorted(
        {
            str(model["id"])
            for sample in samples
            for document in yaml.safe_load_all(sample.path.read_text(encoding="utf-8"))
            if (model := dig(document, "spec", "model", default={})).get("id")
            and model.get("source", "huggingface") == "huggingface"
        }
    )


def _sample(index: Path, position: int, entry: object) -> Sample:
    if not isinstance(entry, Mapping) or not {"file", "shows"} <= set(entry) or not set(entry) <= _FIELDS:
        optional = ", ".join(sorted(_FIELDS - {"file", "shows"}))
        raise SandboxError(
            f"{index}: entry {position} must have file and shows, and may have {optional}; it is {entry!r}"
        )
    values = dict(entry)
    path = index.parent / str(values.pop("file"))
    if not path.is_file():
        raise SandboxError(f"{index}: entry {position} names {path.name}, which is not there")
    return Sample(path=path, **values)
