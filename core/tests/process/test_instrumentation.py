"""A pass seen from outside: time, faults, and log lines that say what they are about."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator

import pytest

from airunway.kube import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    ConnectionFailed,
    Controller,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    RequestTimedOut,
    ServerError,
    TooManyRequests,
    Unauthorized,
    WorkQueue,
)
from airunway.process.base_controller import error_type_of, instrumented
from airunway.process.logs import configure_logging, log_fields
from airunway.process.metric_catalogue import ERROR_TYPES
from airunway.process.metrics import Metrics
from airunway.resource import ObjectKey
from airunway_testing.eventually import Eventually

KEY = ObjectKey("ml", "llama")


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, put back as it was."""
    logger = logging.getLogger()
    before = (logger.handlers[:], logger.level)
    yield logger
    logger.handlers[:], logger.level = before[0], before[1]


async def test_everything_about_a_pass_is_marked(
    root: logging.Logger, capsys: pytest.CaptureFixture[str], eventually: Eventually
) -> None:
    configure_logging(level="info", json=True)
    metrics = Metrics("tests")
    queue: WorkQueue[ObjectKey] = WorkQueue()
    ends = asyncio.Event()

    async def reconcile(key: ObjectKey) -> float | None:
        logging.getLogger("tests").info("working", extra={"step": 1})
        if key.name == "broken":
            raise RuntimeError("no good")
        ends.set()
        return None

    controller = Controller(
        "core", queue,
        instrumented(reconcile, controller="core", metrics=metrics, provider_of=lambda key: key.namespace),
        workers=1, on_pass=metrics.on_pass("core"), on_wait=metrics.on_wait("core"),
    )  # fmt: skip
    queue.add(ObjectKey("kaito", "broken"))
    queue.add(ObjectKey("", "whole"))
    work = asyncio.create_task(controller.run())
    await ends.wait()
    await eventually(lambda: queue.held == 0)
    work.cancel()
    await asyncio.wait({work})
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    broken = [line for line in lines if line.get("object") == "kaito/broken"]
    assert [line["msg"].split(";")[0] for line in broken] == ["working", "core: the pass for kaito/broken failed"]
    for line in broken:
        assert (line["controller"], line["provider"]) == ("core", "kaito")
    assert broken[0]["reconcile_id"] == broken[1]["reconcile_id"]
    assert broken[0]["step"] == 1
    assert "RuntimeError: no good" in broken[1]["exception"]
    whole = next(line for line in lines if line.get("object") == "whole")
    assert "provider" not in whole
    assert whole["reconcile_id"] != broken[0]["reconcile_id"]
    assert log_fields() == {}  # the fields are those of the worker's task, not ours

    def counted(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, labels)

    errors = {"controller": "core", "provider": "kaito", "error_type": "internal"}
    assert counted("airunway_reconciliation_errors_total", **errors) == 1
    assert counted("airunway_reconciliation_duration_seconds_count", controller="core", provider="kaito") == 1
    assert counted("airunway_reconcile_total", controller="core", result="error") == 1
    assert counted("airunway_reconcile_total", controller="core", result="success") == 1
    assert counted("airunway_workqueue_latency_seconds_count", controller="core") == 2


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Conflict(409, "Conflict", ""), "conflict"),
        (AlreadyExists(409, "AlreadyExists", ""), "conflict"),
        (TooManyRequests(429, "TooManyRequests", ""), "throttled"),
        (ConnectionFailed("refused"), "unreachable"),
        (RequestTimedOut("late"), "unreachable"),
        (Invalid(422, "Invalid", ""), "refused"),
        (BadRequest(400, "BadRequest", ""), "refused"),
        (Forbidden(403, "Forbidden", ""), "refused"),
        (Unauthorized(401, "Unauthorized", ""), "refused"),
        (ServerError(500, "InternalError", ""), "server"),
        (NotFound(404, "NotFound", ""), "server"),
        (Gone(410, "Gone", ""), "server"),
        (ApiError(418, "Teapot", ""), "server"),
        (KeyError("x"), "internal"),
    ],
)
def test_error_types(error: Exception, kind: str) -> None:
    assert error_type_of(error) == kind
    assert kind in ERROR_TYPES


def test_people_see_the_fields_too(root: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(level="info", json=False)
    asyncio.run(_one_pass())
    assert "working [core ml/llama kaito " in capsys.readouterr().err


async def _one_pass() -> None:
    async def reconcile(_: ObjectKey) -> float | None:
        logging.getLogger("tests").info("working")
        return None

    await instrumented(reconcile, controller="core", metrics=Metrics("tests"), provider_of=lambda _: "kaito")(KEY)
