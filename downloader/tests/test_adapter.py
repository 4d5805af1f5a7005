"""What a download says of a LoRA adapter: from the file that PEFT writes, and from files that lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from downloader.tests.conftest import LLAMA, Claim

from airunway_downloader.adapter import adapter_in
from airunway_testing.modelhub.hub import Hub, Repository, model_hub

CONFIG = {
    "base_model_name_or_path": "meta-llama/Llama-3.1-8B-Instruct",
    "peft_type": "LORA",
    "r": 16,
    "rank_pattern": {"q_proj": 64},
    "target_modules": ["q_proj", "v_proj"],
}
SAID = {"type": "LORA", "rank": 64, "baseModel": "meta-llama/Llama-3.1-8B-Instruct"}


@pytest.mark.parametrize("folder", ["", "sql/"])
async def test_a_download_reports_the_adapter_also_when_it_is_complete_already(claim: Claim, folder: str) -> None:
    files: dict[str, str | bytes] = {
        f"{folder}adapter_config.json": json.dumps(CONFIG),
        f"{folder}adapter_model.safetensors": b"weights",
    }
    async with model_hub([Repository("acme/lora", files)]) as hub:
        claim.environment["HF_ENDPOINT"] = hub.endpoint
        uri = f"hf://acme/lora/{folder}".rstrip("/")
        first, again = await claim.download(uri), await claim.download(uri)
    assert first.ok["adapter"] == again.ok["adapter"] == SAID


async def test_weights_that_are_no_adapter_have_none_in_the_result(hub: Hub, claim: Claim) -> None:
    assert "adapter" not in (await claim.download(LLAMA)).ok


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", {"problem": "adapter_config.json is no JSON"}),
        ("[" * 60_000, {"problem": "adapter_config.json is no JSON"}),
        ("[]", {"problem": "adapter_config.json is no JSON object"}),
        ("{}", {"problem": "adapter_config.json names no adapter"}),
        (" " * (64 << 10) + "{}", {"problem": "adapter_config.json has more than 65536 bytes"}),
        (json.dumps({**CONFIG, "r": True, "rank_pattern": 3}), {"type": "LORA", "baseModel": SAID["baseModel"]}),
        (json.dumps({**CONFIG, "r": -1, "rank_pattern": {"q": 10**9}}), {k: v for k, v in SAID.items() if k != "rank"}),
        (json.dumps({**CONFIG, "base_model_name_or_path": "a\u0000b"}), {"type": "LORA", "rank": 64}),
        (json.dumps({"peft_type": "P" * 10_000}), {"type": "P" * 253}),
    ],
    ids=range(9),
)
def test_a_file_that_lies_is_bounded(tmp_path: Path, content: str, told: Any) -> None:
    (tmp_path / "adapter_config.json").write_text(content)
    assert adapter_in(tmp_path) == told


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside.json").write_text(json.dumps(CONFIG))
    (tmp_path / "adapter_config.json").symlink_to(tmp_path / "outside.json")
    assert adapter_in(tmp_path) == {}
