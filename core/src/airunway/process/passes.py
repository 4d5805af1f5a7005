"""A reconciler's pass as it is seen from outside: its log lines say what they are about, its time and faults count."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TypeAlias

from airunway.kube import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    TooManyRequests,
    TransportError,
    Unauthorized,
)
from airunway.process.logs import set_log_fields
from airunway.process.metrics import Metrics
from airunway.resource import ObjectKey

__all__ = ["Reconcile", "error_type_of", "observed"]

log = logging.getLogger(__name__)

Reconcile: TypeAlias = Callable[[ObjectKey], Awaitable[float | None]]


def observed(
    reconcile: Reconcile, *, controller: str, metrics: Metrics, provider_of: Callable[[ObjectKey], str]
) -> Reconcile:
    """`reconcile` with its passes measured, and with their log lines marked.

    `provider_of` names the provider of an object before the pass, or is empty. The log fields are left in place when
    the pass ends: what the controller says about its end belongs to it too, and each worker is a task of its own.
    """

    async def one_pass(key: ObjectKey) -> float | None:
        provider = provider_of(key)
        number = f"{random.getrandbits(32):08x}"
        set_log_fields(controller=controller, object=str(key), provider=provider, reconcile_id=number)
        started = monotonic()
        try:
            return await reconcile(key)
        except Exception as error:
            metrics.count("airunway_reconciliation_errors_total", controller, provider, error_type_of(error))
            raise
        finally:
            seconds = monotonic() - started
            metrics.observe("airunway_reconciliation_duration_seconds", seconds, controller, provider)
            log.debug("the pass took %.1f ms", seconds * 1000)

    return one_pass


def error_type_of(error: Exception) -> str:
    """The kind of failure that ended a pass, as the label ``error_type`` has it."""
    match error:
        case Conflict() | AlreadyExists():
            return "conflict"
        case TooManyRequests():
            return "throttled"
        case TransportError():
            return "unreachable"
        case Invalid() | BadRequest() | Forbidden() | Unauthorized():
            return "refused"
        case ApiError():
            return "server"
        case _:
            return "internal"
