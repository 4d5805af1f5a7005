"""How an engine's container is started: image, command, arguments, environment and probes.

It builds on the flag tables of `airunway.engines`. Arguments are lists, never shell strings. The
kubelet expands ``$(NAME)``, so dollar signs in derived values are doubled.

The flags of a group let an engine run one model over several nodes. LeaderWorkerSet defines rank and leader address as
the first variables of every container, so the kubelet expands them in arguments (recorded, LeaderWorkerSet 0.10). vLLM
forms the group without Ray since vllm-project/vllm#23691; its images contain no Ray since 0.18.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from airunway.api.modeldeployment import ModelDeployment
from airunway.api.names import DEFAULT_GPU_TYPE
from airunway.engines.arguments import Instead, engine_arguments, given_flags, literal, names_host
from airunway.engines.options import PROGRAMS, kinds_of, option_remarks, program_of, release_of, whole_option
from airunway.engines.tables import FRONTENDS, flag_table
from airunway.engines.tasks import GENERATE, task_arguments, tasks_of
from airunway.plugins.contract import Finding, ModelCache
from airunway.references import is_path
from airunway.resource import Resource
from airunway.sdk.deployments import image_of, release_in
from airunway.sdk.findings import blocker, gpus_of, ignored, is_nvidia, like_a_flag
from airunway.sdk.plugin import IPV4, IPV6

CONSUMED_ARGS = ("ggufUrl",)
"""Keys of ``spec.engine.args`` that name the model file and are no flags of llama.cpp."""

LLAMA_SERVER = ""
"""Dialect of llama.cpp's own server."""
LOCALAI = "localai"
"""Dialect of the runner images in KAITO's CPU examples, which are built on LocalAI."""

FLAGS_BY_RELEASE = "flags-by-release"
"""Feature of a transformer: flags that only some releases of an engine have depend on the image's release."""

NIXL_HOST: Resource = {
    "name": "VLLM_NIXL_SIDE_CHANNEL_HOST",
    "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
}
"""The address that vLLM announces for fetching its key-value blocks; "localhost" if unset."""

NIXL_TRANSFER: Mapping[str, str] = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
"""vLLM's ``--kv-transfer-config`` for prefill and decode workers that exchange key-value blocks over NIXL."""

_CERTIFICATE = frozenset({"ssl-certfile", "ssl-keyfile"})
"""Flags of the vLLM and SGLang servers; either one makes uvicorn accept only TLS."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A container to be started."""

    engine: str
    image: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[Resource, ...] = ()
    """Variables that the launch needs."""
    port: int = 0
    """0 for a container that does not serve; it has no probes either."""
    startup: Resource = field(default_factory=dict)
    """Startup probe, which allows for loading the weights."""
    readiness: Resource = field(default_factory=dict)
    """Readiness probe."""
    liveness: Resource = field(default_factory=dict)
    """Liveness probe."""
    blockers: tuple[Finding, ...] = ()
    """Why the container must not be started."""
    warnings: tuple[Finding, ...] = ()
    """Fields of the deployment that have no effect."""
    tensor_parallel: int = 1

    @property
    def patience(self) -> int:
        """Seconds that the startup probe allows."""
        return int(self.startup.get("periodSeconds", 10)) * int(self.startup.get("failureThreshold", 3))


@dataclass(frozen=True, kw_only=True)
class _Program:
    """The command line and the probe of the program that runs an engine."""

    command: tuple[str, ...] = ()
    model: str | None = None
    """Flag before the model; None if the model is a positional argument."""
    host: str = "--host"
    """Flag for the address on which it listens; empty: it has none."""
    everywhere: bool = False
    """It listens on all IPv4 addresses without the flag."""
    ipv4_only: str = ""
    """Why it cannot listen on an IPv6 address; empty: it can."""
    ipv4_before: str = ""
    """Which of its images listen on IPv4 only, where the tag does not tell; empty: none."""
    port: str = "--port"
    address: str = ""
    """A format for host and port in one flag; replaces `host` and `port`."""
    health: str = "/health"
    """Path of the HTTP probe; empty: the probe opens the TCP socket."""
    startup: tuple[int, int] = (30, 120)
    """Period (seconds) and failure threshold of the startup probe."""
    gguf: bool = False
    """It loads a GGUF file."""


_PROGRAMS: Mapping[tuple[str, str], _Program] = {
    ("vllm", ""): _Program(command=("vllm", "serve"), everywhere=True),
    ("sglang", ""): _Program(command=("python3", "-m", "sglang.launch_server"), model="--model-path"),
    **{
        ("trtllm", dialect): _Program(
            command=("trtllm-serve", "serve"), ipv4_only="trtllm-serve opens an IPv4 socket, whatever its host is"
        )
        for dialect in ("", "1.0", "1.3")
    },
    ("llamacpp", ""): _Program(health="", startup=(10, 180), gguf=True),
    ("llamacpp", LOCALAI): _Program(
        host="",
        address="--address=:{port}",
        # Fiber, the server of those releases, opens tcp4 sockets; with Echo, the one after it, `:port` takes both.
        ipv4_before="runner images with LocalAI 3.7 or older",
        health="",
        startup=(10, 180),
        gguf=True,
    ),
}
"""By engine and dialect. While llama.cpp loads, its health page returns an error, so its probes open the socket."""


def launch(
    deployment: ModelDeployment,
    engine: str,
    *,
    port: int,
    image: str = "",
    gpus: int | None = None,
    extra: Sequence[str] = (),
    env: Sequence[Resource] = (),
    consumed: Collection[str] = (),
    member: Member | None = None,
    by_release: bool = False,
    release: tuple[int, ...] | None = None,
    program: str = "",
    ip_family: str = IPV4,
    cache: ModelCache | None = None,
) -> Launch:
    """How `engine` serves the deployment's model on `port`.

    The image is the deployment's, else `image` (a provider's setting). `gpus` is the tensor parallel size (default: the
    GPUs of a replica). `extra` are arguments that the provider adds after the derived ones and before the user's.
    `consumed` are keys of ``spec.engine.args`` that the provider uses itself. With `member`, the container belongs to a
    group that runs the model together, and `gpus` counts the GPUs of one member. With `by_release`, flags depend on the
    release in the image's tag (`FLAGS_BY_RELEASE`). `release` is the engine's release for checking options, for images
    whose tag has another meaning.
    `program` is the one whose recorded options the engine's arguments must be among (`airunway.engines.options`;
    default: the engine's own). `ip_family` is the family of the addresses at which probes and Service arrive.
    With `cache` (``context.cache``) the engine loads the weights from there, under the served name; an image with a
    model of its own is started as without. What cannot load them is among the blockers.
    An engine without a known start command needs an image that starts by itself.
    """
    spec = deployment.spec
    custom = spec.model.source == "custom"
    own = image_of(deployment)
    chosen = own or ("" if custom else image)
    dialect = llamacpp_dialect(chosen) if engine == "llamacpp" else ""
    if by_release and engine == "trtllm":
        dialect = _trtllm_dialect(chosen)
    runs = _PROGRAMS.get((engine, dialect))
    group = GROUPS.get(engine)
    blockers = [*_image_blockers(deployment, engine, chosen=chosen, own=own)]
    if member is not None and (group is None or custom):
        who = "an image with a model of its own" if custom else f"{engine} engine"
        text = f"{who} cannot be started on several nodes: ask for at most the GPUs of one node"
        blockers.append(blocker("spec.resources.gpu.count", text))
        member = None
    if custom:
        cache = None
    if cache is not None and chosen:
        blockers += _cache_blockers(deployment, engine, runs, dialect=dialect, cache=cache)
    if runs is None:
        return Launch(
            engine=engine,
            image=chosen,
            args=(*extra, *spec.engine.extra_args),
            env=tuple(env),
            port=port,
            startup=_probe(_Program(), port, period=30, failures=120),
            readiness=_probe(_Program(), port),
            blockers=tuple(blockers),
        )
    model = gguf_reference(deployment) if runs.gguf and cache is None else spec.model.id or ""
    blockers += like_a_flag(
        model,
        "spec.engine.args[ggufUrl]"
        if runs.gguf and cache is None and "ggufUrl" in spec.engine.args
        else "spec.model.id",
    )
    if runs.gguf and dialect == LOCALAI and chosen and cache is None and not custom:
        blockers += _without_a_file(deployment, model)
    each = spec.resources.gpu.count if gpus is None else gpus
    split, stages = group.split(each, member) if group is not None and member is not None else (each, 1)
    # A custom source has no model id, but ggufUrl may name a file in the image.
    words = [] if custom and not runs.gguf else _model_words(deployment, runs, dialect, cache)
    together = group.words(member) if group is not None and member is not None else ()
    serves = member is None or member.leads
    own_host = bool(runs.host) and names_host(deployment, flag_table(engine, dialect))
    host = "" if own_host else "::" if ip_family == IPV6 else "" if runs.everywhere else "0.0.0.0"
    if serves and port and ip_family == IPV6 and runs.ipv4_only and not own_host:
        text = (
            f"{runs.ipv4_only}, and the pods of this cluster have IPv6 addresses: probes would never reach it; choose "
            "another engine, or set engine.args host for a release that can"
        )
        blockers.append(blocker("spec.engine.type", text))
    doubts = []
    if serves and ip_family == IPV6 and runs.ipv4_before:
        text = (
            f"{runs.ipv4_before} listen on IPv4 only, and the pods of this cluster have IPv6 addresses: use a newer one"
        )
        doubts.append(Finding(path="spec.image", reason="MayNotListen", message=text))
    found = launch_by(
        deployment,
        engine,
        # An image that contains the model has its own entrypoint.
        command=() if custom else runs.command,
        words=(*words, *(_address(runs, port, host) if serves else ()), *together, *extra),
        image=chosen,
        dialect=dialect,
        gpus=split,
        stages=stages,
        env=env,
        consumed=(*consumed, *(CONSUMED_ARGS if runs.gguf else ())),
        release=release,
        program=program,
    )
    return replace(
        found,
        port=port if serves else 0,
        startup=_probe(runs, port, period=runs.startup[0], failures=runs.startup[1]) if serves else {},
        readiness=_probe(runs, port) if serves else {},
        blockers=(*blockers, *found.blockers, *(_encrypted(deployment, engine) if serves and port else ())),
        warnings=(*found.warnings, *doubts, *_model_warnings(deployment, runs, dialect, cache)),
    )


def launch_by(
    deployment: ModelDeployment,
    engine: str,
    *,
    command: Sequence[str],
    words: Sequence[str] = (),
    image: str,
    dialect: str = "",
    gpus: int,
    stages: int = 1,
    env: Sequence[Resource] = (),
    consumed: Collection[str] = (),
    release: tuple[int, ...] | None = None,
    program: str = "",
    instead: Mapping[str, Instead] | None = None,
) -> Launch:
    """How a provider's own `command` starts `engine`: `words`, then the arguments from the deployment.

    Tensors are split over `gpus`, and the model over `stages` of a pipeline. `dialect` selects the flag table, and
    `consumed` are keys of ``spec.engine.args`` that the provider uses itself. Options are checked against the release
    in the image's tag, else against `release`, of the program that `command` or `program` names. `instead` says what
    that program has for options of the engine's own HTTP server. Arguments that cannot be honoured are among the
    findings. The container has neither a port nor probes.
    """
    program = program or program_of(engine, dialect=dialect, command=command)
    released = release_of(program, image) or release
    commanded = program in PROGRAMS and not PROGRAMS[program].keywords
    task = deployment.spec.model.task
    blockers: list[Finding] = []
    if deployment.spec.model.source != "custom":
        if task not in tasks_of(engine, dialect):
            able = ", ".join(tasks_of(engine, dialect))
            text = f"the program of {image or engine} does {able} only: name another image or engine"
            blockers.append(blocker("spec.model.task", text))
        given = given_flags(deployment, consumed=consumed)
        words = [*words, *task_arguments(engine, task, dialect=dialect, release=released, given=given)]
    flags = engine_arguments(
        deployment,
        engine=engine,
        dialect=dialect,
        served_name=served_name_of(deployment),
        gpus=gpus,
        stages=stages,
        consumed=consumed,
        instead={**left_out(engine, program), **(instead or {})},
        whole=lambda name: whole_option(engine, name),
        kinds=(lambda option: kinds_of(program, released, option)) if commanded else None,
    )
    unknown = option_remarks(flags.options, program, released)
    return Launch(
        engine=engine,
        image=image,
        command=tuple(command),
        args=(*words, *flags.argv),
        env=tuple(env),
        tensor_parallel=flags.tensor_parallel,
        blockers=(
            *blockers,
            *(blocker(remark.path, remark.message, "BadArguments") for remark in (*flags.errors, *unknown.errors)),
        ),
        warnings=(
            *(ignored(remark.path, remark.message) for remark in flags.warnings),
            *(Finding(path=doubt.path, reason="MayNotStart", message=doubt.message) for doubt in flags.doubts),
            *(
                Finding(path=remark.path, reason="UnknownArgument", message=remark.message)
                for remark in unknown.warnings
            ),
        ),
    )


def left_out(engine: str, program: str) -> dict[str, Instead]:
    """Options of the engine's own HTTP server that a program without it does not get; `server_findings` names them."""
    found = FRONTENDS.get(engine)
    if found is None or program not in PROGRAMS or program == engine:
        return {}
    return {name: Instead() for name in (*found.protecting, *found.others)}


def served_name_of(deployment: ModelDeployment) -> str:
    """The served name of the model: as requested, else the last segment of the model id; empty for a custom source."""
    model = deployment.spec.model
    if model.source == "custom":
        return ""
    return model.served_name or (model.id or "").rstrip("/").rpartition("/")[2]


def weights_of(deployment: ModelDeployment, cache: ModelCache | None) -> str:
    """What the engine loads: the model id, or with a `cache` the path of the weights in the container.

    A command line needs it escaped (`literal`). A cache without a path of its own has the tree of the model's
    repository: an id that goes on after owner and name is the file or folder below the mount.
    """
    model = deployment.spec.model.id or ""
    if cache is None or cache.path:
        return model if cache is None else cache.path
    steps = [] if deployment.spec.model.cache.artifact_name else model.strip("/").split("/")[2:]
    return posixpath.join(cache.mount_path, *steps)


def _cached_gguf(deployment: ModelDeployment, cache: ModelCache) -> str:
    """The GGUF file in the cache: the one that ``ggufUrl`` names below the mount, else the weights."""
    url = deployment.spec.engine.args.get("ggufUrl", "")
    return posixpath.normpath(url.removeprefix("file://")) if url else weights_of(deployment, cache)


def _model_words(
    deployment: ModelDeployment, program: _Program, dialect: str, cache: ModelCache | None = None
) -> list[str]:
    if program.gguf and cache is not None:
        return ["--model", literal(_cached_gguf(deployment, cache))]
    if program.gguf:
        return [literal(word) for word in gguf_arguments(deployment, dialect)]
    model = literal(weights_of(deployment, cache))
    return [model] if program.model is None else [program.model, model]


def _cache_blockers(
    deployment: ModelDeployment, engine: str, program: _Program | None, *, dialect: str, cache: ModelCache
) -> Iterator[Finding]:
    """Why the program cannot load weights from a model cache."""
    mode, where = cache.asked_by, "the image of spec.model.uri" if cache.image else "the model cache"
    if program is None:
        yield blocker(mode, f"how {engine} engine loads weights from a folder is not known: take {where} out")
        return
    if not program.gguf:
        return
    if dialect == LOCALAI:
        text = (
            "the LocalAI runner of llama.cpp fetches its models itself and loads none from "
            f"{'an image of weights' if cache.image else 'a model cache'}: set spec.engine.image to an image of "
            f"llama.cpp's own server (ghcr.io/ggml-org/llama.cpp), or {mode} to "
            f"{'huggingface' if cache.image else 'None'}"
        )
        yield blocker(mode, text)
        return
    file = _cached_gguf(deployment, cache)
    if "ggufUrl" in deployment.spec.engine.args:
        path = "spec.engine.args[ggufUrl]"
        if not file.startswith(f"{cache.mount_path.rstrip('/')}/"):
            text = (
                f"ggufUrl names {file:.200}, and the weights come from {where}: name a file below "
                f"{cache.mount_path}, or take ggufUrl or {'source oci' if cache.image else 'the cache'} out"
            )
            yield blocker(path, text)
            return
    else:
        path = "spec.model.id"
    if not file.lower().endswith(".gguf"):
        text = (
            f"llama.cpp loads one GGUF file, and {file:.200} in {where} is none: append the file to the id "
            f"(<owner>/<repository>/<file>.gguf), or name it in engine.args ggufUrl ({cache.mount_path}/<file>.gguf)"
        )
        yield blocker(path, text)


def _address(program: _Program, port: int, host: str) -> list[str]:
    if program.address:
        return [program.address.format(port=port)]
    flags = {program.host: host, program.port: str(port)} if host else {program.port: str(port)}
    return [word for flag, value in flags.items() for word in ([flag, value] if program.gguf else [f"{flag}={value}"])]


def _probe(program: _Program, port: int, *, period: int = 0, failures: int = 0) -> Resource:
    how: Resource = (
        {"httpGet": {"path": program.health, "port": port}} if program.health else {"tcpSocket": {"port": port}}
    )
    return {**how, "periodSeconds": period, "failureThreshold": failures} if period else how


def _image_blockers(deployment: ModelDeployment, engine: str, *, chosen: str, own: str) -> list[Finding]:
    spec = deployment.spec
    if not chosen and spec.model.source == "custom":
        text = "source custom needs spec.image or spec.engine.image: the image that has the model"
        return [blocker("spec.model.source", text)]
    if not chosen:
        text = f"{engine} engine requires spec.image to be set (or spec.engine.image): there is no default image"
        if not spec.engine.type and not any(gpu and gpu.count for _, gpu in gpus_of(deployment)):
            text += (
                f". {engine} was selected because no GPU is requested: set spec.resources.gpu.count for an engine "
                "that runs on GPUs, such as vllm"
            )
        return [blocker("spec.image", text)]
    found = {path: gpu for path, gpu in gpus_of(deployment) if gpu and gpu.count and not is_nvidia(gpu.resource)}
    for path, gpu in found.items() if not own else ():
        text = f"the default image {chosen} needs {DEFAULT_GPU_TYPE}; set spec.image for {gpu.device_class or gpu.type}"
        return [blocker(f"{path}.{'deviceClass' if gpu.device_class else 'type'}", text)]
    return []


def _encrypted(deployment: ModelDeployment, engine: str) -> Iterator[Finding]:
    """Blockers for flags that make the server accept only HTTPS: probes, Service and gateway use HTTP."""
    for given, path in given_flags(deployment).items():
        if program_of(engine) and (name := whole_option(engine, given)) in _CERTIFICATE:
            text = (
                f"with {name} the server answers HTTPS only; probes, Service, picker and gateway ask over HTTP, so "
                "that no pod would get ready: remove it, and encrypt at the gateway"
            )
            yield blocker(path, text, "BadArguments")


def _trtllm_dialect(image: str) -> str:
    """The dialect of the image's `trtllm-serve`; without a release in the tag, the flags that all releases have."""
    release = release_in(image)
    return "1.3" if release is not None and release >= (1, 3, 0) else "1.0"


def _without_a_file(deployment: ModelDeployment, reference: str) -> Iterator[Finding]:
    """The blocker for a repository where the runner of LocalAI needs a file: it would start, and never serve."""
    if reference.startswith(_HUB) and not reference.endswith(".gguf"):
        text = (
            f"{reference} names a repository, and the runner needs a file in it: append it to the id "
            "(<owner>/<repository>/<file>.gguf) or set engine.args ggufUrl"
        )
        args = deployment.spec.engine.args
        yield blocker("spec.engine.args[ggufUrl]" if "ggufUrl" in args else "spec.model.id", text)


def _model_warnings(
    deployment: ModelDeployment, program: _Program, dialect: str, cache: ModelCache | None
) -> list[Finding]:
    spec, found = deployment.spec, []
    unnamed = dialect == "1.0" and spec.model.source != "custom"
    if unnamed and (cache is not None or not spec.model.served_name):
        # It names a model in a folder after the folder.
        given = f" ({posixpath.basename(weights_of(deployment, cache))})" if cache is not None else ""
        text = (
            f"the model is served under the name that TensorRT-LLM gives it{given}, not as "
            f"{served_name_of(deployment)}: trtllm-serve has a flag for it from release 1.3 on, and the image's tag "
            "names none of these"
        )
        found.append(ignored("spec.model.servedName", text))
    if spec.model.source == "custom":
        if spec.model.task != GENERATE:
            text = "an image with a model of its own is started as it is: task adds no arguments"
            found.append(ignored("spec.model.task", text))
        if spec.model.served_name:
            text = "servedName is ignored for custom source (model name is defined by the container)"
            found.append(ignored("spec.model.servedName", text))
        if spec.model.id:
            text = "id is ignored for custom source (the image has the model)"
            found.append(ignored("spec.model.id", text))
    elif program.gguf and dialect == LOCALAI and cache is None and (path := path_of(deployment)):
        text = (
            f"runner images of AIKit and LocalAI fetch their model and load none by its path ({path:.200}): set "
            "spec.engine.image to an image of llama.cpp's own server (ghcr.io/ggml-org/llama.cpp:server)"
        )
        found.append(Finding(path="spec.engine.image", reason="MayNotStart", message=text))
    return found


_LEADER = "$(LWS_LEADER_ADDRESS)"
_RANK = "$(LWS_WORKER_INDEX)"
GROUP_PORT = 29500
"""The port on which the leader waits for the other members."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """One container of a group that runs a model together."""

    size: int
    """Number of members in the group."""
    leads: bool
    """Whether it serves; the other members only compute."""
    pipelined: bool = True
    """False: split tensors over all nodes, even if the engine would by default run each node as a pipeline stage."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """The group flags of one engine."""

    always: tuple[str, ...]
    """Flags of every member."""
    worker: tuple[str, ...] = ()
    """Further flags of members that do not lead."""
    staged: bool
    """Each node is a pipeline stage, and tensors are split within a node. False: tensors are split over all nodes."""

    def words(self, member: Member) -> tuple[str, ...]:
        """The arguments by which a member joins its group."""
        rank = "0" if member.leads else _RANK
        texts = self.always if member.leads else (*self.always, *self.worker)
        return tuple(text.format(size=member.size, rank=rank, leader=_LEADER, port=GROUP_PORT) for text in texts)

    def split(self, gpus: int, member: Member) -> tuple[int, int]:
        """Tensor parallel size and number of pipeline stages, with `gpus` on each node of the group."""
        return (gpus, member.size) if self.staged and member.pipelined else (gpus * member.size, 1)


GROUPS: Mapping[str, Group] = {
    "vllm": Group(
        always=(
            "--distributed-executor-backend=mp",
            "--nnodes={size}",
            "--node-rank={rank}",
            "--master-addr={leader}",
            "--master-port={port}",
        ),
        worker=("--headless",),
        staged=True,
    ),
    "sglang": Group(
        always=("--nnodes={size}", "--node-rank={rank}", "--dist-init-addr={leader}:{port}"),
        staged=False,
    ),
}
"""By engine; an engine that is not listed runs on one node only."""


_SERVER_IMAGES = frozenset({"llama.cpp", "llama-server", "llama-cpp-server"})
_HUB = "huggingface://"


def llamacpp_dialect(image: str) -> str:
    """The command line dialect of an image, by the last segment of its repository; `LOCALAI` for unknown ones."""
    repository = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    return LLAMA_SERVER if repository in _SERVER_IMAGES else LOCALAI


def gguf_reference(deployment: ModelDeployment) -> str:
    """Where the GGUF file is: ``ggufUrl`` in the engine's args, else the model id (a path, a repository, or repository
    and file).

    Empty for a custom source, because its image contains the model.
    """
    spec = deployment.spec
    if url := spec.engine.args.get("ggufUrl"):
        return url
    if not spec.model.id or spec.model.source != "huggingface":
        return ""
    return spec.model.id if is_path(spec.model.id) else f"{_HUB}{spec.model.id}"


def path_of(deployment: ModelDeployment) -> str:
    """The path that names the model, in the id or in ``ggufUrl``; empty if a hub or a URL has it."""
    reference = (deployment.spec.engine.args.get("ggufUrl") or deployment.spec.model.id or "").removeprefix("file://")
    return reference if is_path(reference) and deployment.spec.model.source != "custom" else ""


def gguf_arguments(deployment: ModelDeployment, dialect: str) -> list[str]:
    """The arguments that name the model in that dialect; none if the image contains the model."""
    reference = gguf_reference(deployment)
    if not reference or dialect == LOCALAI:
        return [reference] if reference else []
    if reference.startswith(_HUB):
        owner, _, rest = reference.removeprefix(_HUB).partition("/")
        repository, _, file = rest.partition("/")
        return ["--hf-repo", f"{owner}/{repository}".rstrip("/"), *(["--hf-file", file] if file else [])]
    if reference.startswith(("https://", "http://")):
        return ["--model-url", reference]
    return ["--model", reference.removeprefix("file://")]
