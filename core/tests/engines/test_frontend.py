"""The flags of an engine's own HTTP server are those of its real releases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airunway.engines.arguments import options_in
from airunway.engines.options import option_remarks, whole_option
from airunway.engines.tables import SGLANG_FRONTEND, VLLM_FRONTEND, flag_table

RECORDED = Path(__file__).parents[3] / "providers" / "kuberay" / "tests" / "ray" / "vllm"


@pytest.mark.parametrize("release", ["0.22.0", "0.29.0"])
def test_every_flag_of_vllm_s_http_server_is_known(release: str) -> None:
    """Read out of the wheel by tools/vllm_fields.py: what the class has beyond its base."""
    found = json.loads((RECORDED / f"{release}.json").read_text())
    own = {name.replace("_", "-") for name in set(found["FrontendArgs"]) - set(found["BaseFrontendArgs"])}
    assert {"api-key", "ssl-certfile", "root-path"} <= own, "the record is one"
    known = VLLM_FRONTEND.protecting | VLLM_FRONTEND.others | flag_table("vllm").reserved
    assert own - known == set()


def test_what_protects_is_not_among_the_harmless() -> None:
    assert not VLLM_FRONTEND.protecting & VLLM_FRONTEND.others
    assert not (VLLM_FRONTEND.protecting | VLLM_FRONTEND.others) & flag_table("vllm").reserved


def test_sglang_s_flags_are_options_of_its_parser() -> None:
    names = SGLANG_FRONTEND.protecting | SGLANG_FRONTEND.others
    words = [word for name in sorted(names) for word in (f"--{name}", "1")]
    unknown = [
        found for found in option_remarks(options_in(words), "sglang", None).warnings if "has --" in found.message
    ]
    assert unknown == []
    assert not SGLANG_FRONTEND.protecting & SGLANG_FRONTEND.others
    assert not names & flag_table("sglang").reserved


def test_a_beginning_stands_for_the_only_option_that_has_it() -> None:
    assert whole_option("vllm", "api-k") == "api-key"
    assert whole_option("vllm", "--api_key") == "api-key"
    assert whole_option("sglang", "admin") == "admin-api-key"
    assert whole_option("vllm", "ssl-") == "ssl-", "several begin so"
    assert whole_option("trtllm", "api-k") == "api-k", "not recorded"
