"""What commands that ask a cluster say when it cannot answer."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
import yaml

from airunway.cli.inputs import on_cluster
from airunway.kube import Client
from airunway.kube.errors import Forbidden, KubeError, NotFound, RequestTimedOut


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
        (NotFound(404, "", "404 page not found"), True),
        (NotFound(404, "NotFound", 'modeldeployments.airunway.ai "llama" not found'), False),
        (Forbidden(403, "Forbidden", "you may not"), False),
        (RequestTimedOut("no answer"), False),
    ],
)
def test_a_kind_that_is_not_served_makes_a_command_ask_whether_ai_runway_is_installed(
    kubeconfig: Path, capsys: pytest.CaptureFixture[str], error: KubeError, advised: bool
) -> None:
    async def work(client: Client) -> None:
        raise error

    with pytest.raises(typer.Exit) as ended:
        on_cluster(work, kubeconfig=kubeconfig, context=None)
    assert ended.value.exit_code == 1
    said = capsys.readouterr().err
    assert str(error) in said
    assert ("`airunway doctor`" in said) is advised
