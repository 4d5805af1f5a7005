"""Reads deployments, providers and policies from files, plugins or a cluster, and selects providers for them."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

import typer

from airunway.cli.manifests import ManifestError, objects_in
from airunway.redaction import printable
from airunway.resource import ObjectKey, Resource, copy_of, dig, key_of, labels_of, parse_time

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence

    from airunway.kube import Client, KubeError
    from airunway.plugins.host import ProviderHost
    from airunway.runtime.translate import TranslationResult
    from airunway.selection import ProviderRefusal
    from airunway.validation.policy import Policy

__all__ = [
    "DEPLOYMENT_WORDS",
    "Choice",
    "Manifests",
    "Unchosen",
    "asking_plugins",
    "assigned",
    "choose",
    "choose_among",
    "definitions_in",
    "fail",
    "in_namespace",
    "installed_configs",
    "manifests_in",
    "namespace_labels_in",
    "on_cluster",
    "parse_target",
    "policy_in",
    "provider_configs_in",
    "read_artifacts",
    "read_cluster",
    "read_namespace_labels",
    "ready_configs",
    "reporting",
    "time_of",
    "warnings_of",
]

T = TypeVar("T")

DEPLOYMENT_WORDS = (
    "md",
    "modeldeployment",
    "modeldeployments",
    "modeldeployment.airunway.ai",
    "modeldeployments.airunway.ai",
)
"""The words for the kind, as kubectl has them."""


def fail(message: str) -> NoReturn:
    """Print an error on standard error and exit with 1."""
    typer.echo("\n".join(map(printable, f"airunway: {message}".splitlines())), err=True)
    raise typer.Exit(1)


@contextmanager
def reporting() -> Iterator[None]:
    """Turn errors of files, plugins and policies into one message and exit code 1, without a traceback."""
    from airunway.plugins.errors import PluginError
    from airunway.validation.policy import PolicyError

    try:
        yield
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except (ManifestError, PluginError, PolicyError, UnicodeDecodeError) as error:
        fail(str(error))


def parse_target(words: list[str]) -> str:
    """The name in ``md/NAME``, ``md NAME`` or ``NAME``. Raises typer.BadParameter."""
    parts = words[0].split("/") if len(words) == 1 else words
    if len(parts) == 1 and parts[0]:
        return parts[0]
    if len(parts) != 2 or parts[0].lower() not in DEPLOYMENT_WORDS or not parts[1]:
        raise typer.BadParameter(f"{' '.join(words)!r} is not a ModelDeployment: write md/NAME")
    return parts[1]


@dataclass(frozen=True, kw_only=True)
class Manifests:
    """What a file of deployments has."""

    deployments: list[Resource]
    """Its ModelDeployments; at least one."""
    configs: list[Resource]
    """Its RuntimeConfigs and ClusterRuntimeConfigs, and those of other files."""
    templates: list[Resource]
    """Its ModelTemplates and ClusterModelTemplates."""


def manifests_in(path: Path, others: Sequence[Path] = (), *, namespace: str) -> Manifests:
    """What a file of deployments has, read once, with the runtime configs of `others`.

    Objects without a namespace are in `namespace`. Raises ManifestError (also if there is no deployment, or if one of
    `others` has no runtime config) and OSError.
    """
    from airunway.cli.template_files import templates_among

    objects = list(objects_in(path))
    deployments = [in_namespace(obj, namespace) for obj in objects if obj.get("kind") == "ModelDeployment"]
    if not deployments:
        raise ManifestError(f"{path}: contains no ModelDeployment")
    return Manifests(
        deployments=deployments,
        configs=_with_others(_configs_among(objects, namespace), others, namespace),
        templates=templates_among(objects, namespace=namespace),
    )


def _with_others(configs: list[Resource], others: Sequence[Path], namespace: str) -> list[Resource]:
    for other in others:
        found = _configs_among(objects_in(other), namespace)
        if not found:
            raise ManifestError(f"{other}: contains no RuntimeConfig or ClusterRuntimeConfig")
        configs = [*found, *configs]
    return configs


def _configs_among(objects: Iterable[Resource], namespace: str) -> list[Resource]:
    """The runtime configs among the objects, RuntimeConfigs with their namespace."""
    return [
        in_namespace(obj, namespace) if obj["kind"] == "RuntimeConfig" else obj
        for obj in objects
        if obj.get("kind") in ("RuntimeConfig", "ClusterRuntimeConfig")
    ]


def definitions_in(path: Path) -> list[Resource]:
    """The CustomResourceDefinitions of a file (``-``: standard input).

    Raises ManifestError (also if there is none, or one is malformed) and OSError.
    """
    from airunway.schema import malformed

    found = [obj for obj in objects_in(path) if obj.get("kind") == "CustomResourceDefinition"]
    if not found:
        raise ManifestError(f"{path}: contains no CustomResourceDefinition")
    for crd in found:
        if problem := malformed(crd):
            raise ManifestError(f"{path}: CustomResourceDefinition {key_of(crd).name}: {problem}")
    return found


def provider_configs_in(path: Path) -> list[Resource]:
    """The InferenceProviderConfigs of a file or of the YAML and JSON files of a directory.

    One without a status counts as ready. Raises ManifestError (also if there is none) and OSError.
    """
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in (".yaml", ".yml", ".json"))
    found = [obj for file in files for obj in objects_in(file) if obj.get("kind") == "InferenceProviderConfig"]
    if not found:
        raise ManifestError(f"{path}: contains no InferenceProviderConfig")
    return [obj if isinstance(obj.get("status"), dict) else {**obj, "status": {"ready": True}} for obj in found]


def installed_configs(names: list[str] | None = None) -> list[Resource]:
    """The config of each installed provider plugin (or of `names`), as if it were ready. Raises PluginError."""
    from airunway.plugins.registry import discover, load

    if names is None:
        names = [distribution.name for distribution in discover()]
    return ready_configs([load(name) for name in names])


def ready_configs(hosts: Sequence[ProviderHost]) -> list[Resource]:
    """The config of each provider, as if it were ready. Raises PluginError."""
    from airunway.runtime.application import config_object

    configs = [config_object(host.manifest) for host in hosts]
    return [{**config, "status": {"ready": True}} for config in configs]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The provider and engine selected for a deployment of a file."""

    deployment: Resource
    provider: str
    engine: str


class Unchosen(Exception):
    """No provider can be selected; `reasons` has one sentence for each problem."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


def choose(deployment: Resource, *, provider: str, now: datetime) -> Choice:
    """Select provider and engine as the core does, among the installed plugins, which all count as ready.

    `provider`, or otherwise the provider of the spec, counts as the user's choice. Raises Unchosen and PluginError.
    """
    named = provider or dig(deployment, "spec", "provider", "name") or ""
    return choose_among(installed_configs([named] if named else None), deployment, provider=named, now=now)


def asking_plugins(deployment: Resource, *, now: datetime) -> Callable[[str, str], ProviderRefusal | None]:
    """A function that returns why an installed plugin refuses the deployment, by names of provider and engine.

    It returns None if the plugin accepts it or is not installed.
    """
    from airunway.plugins.errors import PluginError, PluginFault
    from airunway.runtime.report import located
    from airunway.selection import ProviderRefusal

    def asked(name: str, engine: str) -> ProviderRefusal | None:
        try:
            judged = _judged(deployment, name, engine, now=now)
        except (PluginError, PluginFault) as error:
            return ProviderRefusal(generation=0, reason="ProviderError", message=str(error))
        if judged is None or not judged.blockers:
            return None
        text = "; ".join(located(finding) for finding in judged.blockers)
        return ProviderRefusal(generation=0, reason=judged.blockers[0].reason, message=text)

    return asked


def warnings_of(deployment: Resource, provider: str, engine: str, *, now: datetime) -> tuple[str, ...]:
    """The warnings of a provider: from the status if it is the selected one, else from its installed plugin."""
    from airunway.plugins.errors import PluginError, PluginFault
    from airunway.runtime.report import warning_text

    if dig(deployment, "status", "provider", "name") == provider:
        return tuple(map(str, dig(deployment, "status", "warnings") or ()))
    try:
        judged = _judged(deployment, provider, engine, now=now)
    except (PluginError, PluginFault):
        return ()  # the refusal reports it
    return tuple(dict.fromkeys(warning_text(finding) for finding in judged.warnings)) if judged is not None else ()


def _judged(deployment: Resource, name: str, engine: str, *, now: datetime) -> TranslationResult | None:
    """The translation by an installed plugin, with default settings and the newest upstream that it knows.

    None if it is not installed. Raises PluginError, PluginFault.
    """
    from airunway.api.modeldeployment import parse_deployment
    from airunway.plugins.host import assumed_context
    from airunway.plugins.registry import discover, load
    from airunway.runtime.gate import assumed_cache
    from airunway.runtime.translate import translate

    if all(found.name != name for found in discover(on_request=True)):
        return None
    host = load(name)
    chosen = assigned(deployment, engine)
    context = assumed_context(host, engine=engine, now=now, cache=assumed_cache(chosen, None, host))
    return translate(host, chosen, parse_deployment(deployment), context)


def assigned(deployment: Resource, engine: str) -> Resource:
    """The deployment as a provider gets it for an engine, from a core whose model cache part is on."""
    from airunway.api.names import MODEL_CACHE_PART

    return {**deployment, "status": {"engine": {"type": engine}, "parts": [MODEL_CACHE_PART]}}


def choose_among(configs: Sequence[Resource], deployment: Resource, *, provider: str, now: datetime) -> Choice:
    """Like `choose`, among the providers of these InferenceProviderConfigs. Raises Unchosen."""
    from airunway.selection import provider_facts
    from airunway.selection.explanation import explain

    spec = deployment.get("spec")
    if provider and isinstance(spec, dict):
        deployment = {**deployment, "spec": {**spec, "provider": {**(dig(spec, "provider") or {}), "name": provider}}}
    asked = None if dig(deployment, "spec", "provider", "name") else asking_plugins(deployment, now=now)
    explanation = explain(deployment, [provider_facts(config) for config in configs], now=now, asked=asked)
    if explanation.violations:
        raise Unchosen([str(violation) for violation in explanation.violations])
    if explanation.provider is None or explanation.engine is None or explanation.engine.engine is None:
        raise Unchosen([f"no provider: {explanation.message}"])
    return Choice(deployment=deployment, provider=explanation.provider, engine=explanation.engine.engine)


def policy_in(path: Path) -> Policy:
    """The policy of a file, as the controller reads it. Raises PolicyError and OSError."""
    from airunway.validation.policy import PolicyError, parse_policy

    try:
        return parse_policy(path.read_text(encoding="utf-8"))
    except PolicyError as error:
        raise PolicyError(f"{path}: {error}") from error


def namespace_labels_in(path: Path) -> dict[str, dict[str, str]]:
    """The labels of the Namespaces in a file, by name; empty for standard input, which was consumed already."""
    if str(path) == "-":
        return {}
    return {key_of(obj).name: labels_of(obj) for obj in objects_in(path) if obj.get("kind") == "Namespace"}


def on_cluster(
    work: Callable[[Client], Awaitable[T]], *, kubeconfig: Path | None, context: str | None, timeout: float = 30.0
) -> T:
    """The result of `work` with a client of the user's cluster; `timeout` is in seconds, for each request.

    Exits with 1 and one message on a KubeError.
    """
    import asyncio

    from airunway.kube import Client, KubeError, load_config, user_agent_of

    server = ""

    async def main() -> T:
        nonlocal server
        config = load_config(kubeconfig=kubeconfig, context=context)
        server = config.server
        async with Client(config, user_agent=user_agent_of("cli"), timeout=timeout) as client:
            return await work(client)

    try:
        return asyncio.run(main())
    except KubeError as error:
        fail(f"{error}{_advice(error, server)}")


def _advice(error: KubeError, server: str) -> str:
    """What the user can do about the error, to be appended to its message."""
    from airunway.kube import ApiError, ErrorKind, TransportError, Unauthorized

    if isinstance(error, TransportError):
        return (
            f". Check that {server} is the right cluster (--context, --kubeconfig) and that this machine can reach it"
        )
    if isinstance(error, Unauthorized):
        return f". {server} rejected the credentials: log in again, or use another --context"
    if isinstance(error, ApiError) and error.kind is ErrorKind.KIND_NOT_SERVED:
        return ". Check that AI Runway is installed there: `airunway doctor` shows what is missing"
    return ""


def read_namespace_labels(
    names: Collection[str], *, kubeconfig: Path | None, context: str | None
) -> dict[str, dict[str, str]]:
    """The labels of these namespaces of a cluster; none for one that does not exist. Exits with 1 on errors."""
    from airunway.kube import NAMESPACE, NotFound

    async def read(client: Client) -> dict[str, dict[str, str]]:
        found = {}
        for name in names:
            with suppress(NotFound):
                found[name] = labels_of(await client.get(NAMESPACE, ObjectKey("", name)))
        return found

    return on_cluster(read, kubeconfig=kubeconfig, context=context)


def time_of(configs: list[Resource]) -> datetime:
    """The time when the configs in files were recorded: the newest heartbeat, or now if there is none."""
    beats = [parse_time(dig(config, "status", "lastHeartbeat")) for config in configs]
    return max((beat for beat in beats if beat is not None), default=datetime.now(UTC))


def read_cluster(
    *, kubeconfig: Path | None, context: str | None, namespace: str, name: str | None
) -> tuple[Resource | None, list[Resource]]:
    """The ModelDeployment `name` (if given) and all InferenceProviderConfigs of a cluster; exits with 1 on errors."""
    from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT

    async def read(client: Client) -> tuple[Resource | None, list[Resource]]:
        deployment = None
        if name is not None:
            deployment = await client.get(MODEL_DEPLOYMENT, ObjectKey(namespace or client.config.namespace, name))
        return deployment, await client.list_all(INFERENCE_PROVIDER_CONFIG)

    return on_cluster(read, kubeconfig=kubeconfig, context=context)


def read_runtime_configs(deployment: Resource, *, kubeconfig: Path | None, context: str | None) -> list[Resource]:
    """The RuntimeConfig and the ClusterRuntimeConfig of the name that the deployment follows, if they exist.

    A cluster without these kinds has none. One that may not be read is reported on stderr, and counts as absent.
    Exits with 1 on other errors.
    """
    from airunway.configs import config_name
    from airunway.kinds import CLUSTER_RUNTIME_CONFIG, RUNTIME_CONFIG
    from airunway.kube import Forbidden

    name, namespace = config_name(deployment), key_of(deployment).namespace

    async def read(client: Client) -> list[Resource]:
        configs = []
        for kind, key in (
            (RUNTIME_CONFIG, ObjectKey(namespace, name)),
            (CLUSTER_RUNTIME_CONFIG, ObjectKey("", name)),
        ):
            try:
                found = await client.find(kind, key)
            except Forbidden as error:
                typer.echo(printable(f"airunway: {error}: it counts as absent here"), err=True)
                continue
            if found is not None:
                configs.append({**found, "kind": kind.kind})
        return configs

    return on_cluster(read, kubeconfig=kubeconfig, context=context)


def read_artifacts(deployment: Resource, *, kubeconfig: Path | None, context: str | None) -> list[Resource]:
    """The ModelArtifacts of the deployment's namespace, if it asks for a model cache.

    A cluster without the kind has none. Without the right to list them, that is said on standard error. Exits with 1 on
    other errors.
    """
    from airunway.kinds import MODEL_ARTIFACT
    from airunway.kube import Forbidden, NotFound
    from airunway.resource import dig

    if dig(deployment, "spec", "model", "cache", "mode") in (None, "None"):
        return []

    async def read(client: Client) -> list[Resource]:
        try:
            return await client.list_all(MODEL_ARTIFACT, namespace=key_of(deployment).namespace)
        except NotFound:
            return []
        except Forbidden as error:
            typer.echo(printable(f"airunway: {error}: they count as absent here"), err=True)
            return []

    return on_cluster(read, kubeconfig=kubeconfig, context=context)


def in_namespace(obj: Resource, namespace: str) -> Resource:
    """A copy of the object, in `namespace` (empty: default) if it names none."""
    copied = copy_of(obj)
    metadata = copied.get("metadata")
    if isinstance(metadata, dict):
        metadata["namespace"] = metadata.get("namespace") or namespace or "default"
    return copied
