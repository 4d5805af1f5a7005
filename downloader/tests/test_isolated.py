"""The program of the image runs no code that a variable or a file of the claim names: each attack is carried out."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path

import pytest
from downloader.tests.conftest import LLAMA, Claim

import airunway_downloader
from airunway.artifacts.jobs import ENVIRONMENT
from airunway_downloader.environment import FAMILIES, NAMES, is_read, keep_own
from airunway_testing.modelhub.hub import Hub, Repository, model_hub

CONTAINERFILE = Path(__file__).parents[2] / "images" / "Containerfile.downloader"
PACKAGE = Path(airunway_downloader.__file__).parent
EVIL = "import os; open(os.environ['TMPDIR'] + '/stolen', 'w').write('code of the thief')\n"


def program() -> list[str]:
    """The image's program, with the interpreter and the package of this machine."""
    line = re.search(r"^ENTRYPOINT (.*)$", CONTAINERFILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert line is not None
    interpreter, *options, package = json.loads(line[1])
    assert interpreter.startswith("/usr/bin/python3")
    assert Path(package).name == PACKAGE.name
    return [sys.executable, *options, str(PACKAGE)]


async def started(words: list[str], claim: Claim, **variables: str) -> bool:
    """Whether code of the thief ran in the downloader, which is started in the folder of the weights."""
    known = {"PATH": os.defpath, "TMPDIR": str(claim.folder.parent), "AIRUNWAY_PROGRESS_PORT": "0"}
    log = {"AIRUNWAY_TERMINATION_LOG": str(claim.folder.parent / "termination-log")}
    model = claim.folder / "model"
    process = await asyncio.create_subprocess_exec(
        *words,
        *("check-size", LLAMA),
        cwd=model,
        env={**known, **log, **claim.environment, **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    said, _ = await process.communicate()
    stolen = claim.folder.parent / "stolen"
    found = stolen.exists()
    stolen.unlink(missing_ok=True)
    if not found:
        assert process.returncode == 0
        assert json.loads(said)["ok"]["files"] > 0
    return found


ATTACKS: dict[str, tuple[str, dict[str, str]]] = {
    "a sitecustomize of the weights": ("sitecustomize.py", {"PYTHONPATH": "{model}"}),
    "a module of the weights": ("json.py", {"PYTHONPATH": "{model}"}),
    "a module beside the process": ("urllib3.py", {}),
    "a user's folder": (
        f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages/usercustomize.py",
        {"PYTHONUSERBASE": "{model}"},
    ),
    "a user's home": (
        f".local/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages/usercustomize.py",
        {"HOME": "{model}"},
    ),
    "a warning's class": ("thief.py", {"PYTHONPATH": "{model}", "PYTHONWARNINGS": "error::thief.Warning"}),
    "a breakpoint": ("thief.py", {"PYTHONPATH": "{model}", "PYTHONBREAKPOINT": "thief.run"}),
}


@pytest.mark.parametrize("what", ATTACKS)
async def test_h2_the_program_of_the_image_runs_no_code_of_the_claim(hub: Hub, claim: Claim, what: str) -> None:
    path, variables = ATTACKS[what]
    evil = claim.folder / "model" / path
    evil.parent.mkdir(parents=True)
    evil.write_text(EVIL)
    given = {name: value.format(model=claim.folder / "model") for name, value in variables.items()}
    assert not await started(program(), claim, **given)


async def test_h2_the_attack_is_one_a_program_that_is_not_isolated_runs_it(hub: Hub, claim: Claim) -> None:
    model = claim.folder / "model"
    model.mkdir()
    (model / "sitecustomize.py").write_text(EVIL)
    as_before = [sys.executable, "-P", "-m", "airunway_downloader"]
    assert await started(as_before, claim, PYTHONPATH=str(model))


async def test_h2_a_repository_with_a_sitecustomize_is_fetched_and_not_run(claim: Claim) -> None:
    """The whole attack: the first Job fetches the thief's file, the second one is to run it."""
    async with model_hub([Repository("acme/llama", {"sitecustomize.py": EVIL.encode()})]) as thief_s:
        claim.environment["HF_ENDPOINT"] = thief_s.endpoint
        assert (await claim.download(LLAMA)).code == 0
        model = claim.folder / "model"
        assert (model / "sitecustomize.py").read_text() == EVIL
        assert not await started(program(), claim, PYTHONPATH=str(model))


def test_h2_a_variable_that_openssl_or_the_c_library_reads_is_gone_before_they_are_loaded() -> None:
    environment = dict.fromkeys(("OPENSSL_CONF", "GCONV_PATH", "LD_PRELOAD", "PYTHONPATH", "HF_TOKEN", "HOME"), "x")
    keep_own(environment)
    assert set(environment) == {"HF_TOKEN", "HOME"}


def test_h2_the_guard_admits_what_the_program_reads_and_no_more() -> None:
    assert {*NAMES, *(f"{family}*" for family in FAMILIES)} == set(ENVIRONMENT)
    assert not any(map(is_read, ("PYTHONPATH", "LD_PRELOAD", "OPENSSL_CONF", "http_proxy_evil", "aws_x")))
