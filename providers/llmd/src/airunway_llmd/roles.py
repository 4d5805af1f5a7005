"""The servers of a deployment: one role, or prefill and decode, and whether these two are compatible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airunway.sdk import (
    NIXL_HOST,
    NIXL_TRANSFER,
    SERVING_PORT,
    Context,
    Finding,
    ModelDeployment,
    bad_override,
    blocker,
    canonical_json,
    ignored,
    is_disaggregated,
    picker,
    serving,
)
from airunway_llmd.manifest import DECODE, PREFILL
from airunway_llmd.settings import Settings
from airunway_llmd.sidecar import NIXL, SERVER_PORT, connector_of

_ROLE = "llm-d.ai/role"
_TRANSFER = "kv-transfer-config"


def pool_labels(deployment: ModelDeployment) -> dict[str, str]:
    """The labels of the servers in a pool, which its selector matches."""
    return {picker.POOL_LABEL: deployment.metadata.name}


def roles_of(deployment: ModelDeployment, context: Context[Settings]) -> tuple[serving.Servers, ...]:
    """The servers; the first role is the one that answers requests."""
    name, image, pool = deployment.metadata.name, context.settings.vllm_image, pool_labels(deployment)
    if not is_disaggregated(deployment):
        return (serving.Servers(name=name, port=SERVING_PORT, image=image, labels=pool),)
    nixl = connector_of(deployment) == NIXL
    extra = (
        ("--kv-transfer-config", canonical_json(dict(NIXL_TRANSFER)).decode())
        if nixl and not _transfers(deployment)
        else ()
    )
    return tuple(
        serving.Servers(
            name=f"{name}-{role}",
            component=role,
            role=role,
            port=port,
            image=image,
            extra=extra,
            env=(NIXL_HOST,) if nixl else (),
            labels={**pool, _ROLE: role},
            # Tensor parallel ranks exchange blocks with their counterparts; pipeline stages have none.
            pipelined=False,
        )
        for role, port in ((DECODE, SERVER_PORT), (PREFILL, SERVING_PORT))
    )


def pair_findings(
    deployment: ModelDeployment, context: Context[Settings], roles: Sequence[serving.Servers]
) -> tuple[list[Finding], list[Finding]]:
    """Blockers and warnings about incompatible roles, which fail or may fail at the first request."""
    connector = connector_of(deployment)
    if connector != NIXL:
        return ([] if _transfers(deployment) else [_without_transfer(connector)]), []
    decode, prefill = (serving.launch_of(deployment, context, role).tensor_parallel for role in roles)
    path = "spec.scaling.prefill.gpu.count"
    split = f"prefill splits tensors over {prefill} GPUs and decode over {decode}"
    if decode % prefill and prefill % decode:
        text = f"{split}: one must be a multiple of the other, or NIXL refuses the transfer at the first request"
        return [blocker(path, text)], []
    if prefill > decode:
        text = (
            f"{split}: older releases of vLLM refuse that at the first request (NIXL), and newer ones for models with "
            "state layers (Mamba); give prefill no more GPUs than decode"
        )
        return [], [ignored(path, text)]
    return [], []


def _without_transfer(connector: str) -> Finding:
    text = (
        f"connector {connector!r} needs vLLM's side of it too: set spec.engine.args[{_TRANSFER}], or leave the "
        f"connector out for {NIXL}"
    )
    return bad_override("connector", text)


def _transfers(deployment: ModelDeployment) -> bool:
    """Whether the user sets how vLLM transfers key-value blocks."""
    return any(flag.lstrip("-").replace("_", "-") == _TRANSFER for flag in _flags(deployment))


def _flags(deployment: ModelDeployment) -> Iterator[str]:
    yield from deployment.spec.engine.args
    yield from (word.partition("=")[0] for word in deployment.spec.engine.extra_args)
