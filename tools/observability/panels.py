"""What a panel of the dashboard is, and what several of them ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["IN_NAMESPACE", "OF_PROVIDER", "Panel", "Row", "quantiles"]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel: `queries` are (PromQL, legend) pairs; `kind` is Grafana's panel type, `width` in 24ths."""

    title: str
    queries: tuple[tuple[str, str], ...]
    description: str
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 8


def quantiles(metric: str, by: str) -> tuple[tuple[str, str], ...]:
    return tuple(
        (
            f"histogram_quantile({quantile}, sum by ({by}, le) (rate({metric}_bucket[$__rate_interval])))",
            f"{{{{{by}}}}} p{round(quantile * 100)}",
        )
        for quantile in (0.5, 0.99)
    )


Row: TypeAlias = tuple[str, tuple[Panel, ...]]
"""A row of panels under a title."""

IN_NAMESPACE = 'namespace=~"$namespace"'
OF_PROVIDER = 'provider=~"$provider"'
"""Matchers: what was chosen at the top of the dashboard."""
