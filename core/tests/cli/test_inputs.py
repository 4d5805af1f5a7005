"""What commands that ask a cluster say when it cannot answer."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
import yaml

from airunway.cli.cluster import Access, on_cluster
from airunway.kube import Client
from airunway.kube.errors import Forbidden, KubeError, NotFound, RequestTimedOut, Unauthorized


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.parametrize(
    ("error", "advised"),
    [
        (
            NotFound(404, "", "404 page not found"),
            "http://127.0.0.1:1 does not serve the kinds of AI Runway. Check that it is the right cluster",
        ),
        (NotFound(404, "NotFound", 'modeldeployments.airunway.ai "llama" not found'), ""),
        (Forbidden(403, "Forbidden", "you may not"), ""),
        (RequestTimedOut("no answer"), "Check that http://127.0.0.1:1 is the right cluster (--context, --kubeconfig)"),
        (
            Unauthorized(401, "Unauthorized", "Unauthorized"),
            "http://127.0.0.1:1 rejected the credentials (401): log in again",
        ),
    ],
)
def test_what_a_cluster_says_comes_with_what_to_do_about_it(
    kubeconfig: Path, capsys: pytest.CaptureFixture[str], error: KubeError, advised: str
) -> None:
    async def work(client: Client) -> None:
        raise error

    with pytest.raises(click.exceptions.Exit) as ended:
        on_cluster(work, Access(kubeconfig, None))
    assert ended.value.exit_code == 1
    said = capsys.readouterr().err
    assert (advised or f"airunway: {error}\n") in said
    assert "404 page not found" not in said
