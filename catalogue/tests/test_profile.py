"""What an image reported: what is read, and why the rest is not."""

from __future__ import annotations

import json

import pytest

from airunway_catalogue.profile import MAX_DEPTH, MAX_OUTPUT, Unreadable, read_report

REPORT = {
    "profile": {"metadata": {"precision": "fp8", "gpu_count": 1}},
    "models": [{"name": "acme/tiny", "source": "hf://acme/tiny", "size_gb": 16.06}],
}


@pytest.mark.parametrize(
    "output", [json.dumps(REPORT), json.dumps([REPORT, {"profile": {}}]), f"\n {json.dumps(REPORT)}\n"]
)
def test_an_object_or_the_first_of_a_list_is_read(output: str) -> None:
    report = read_report(output)
    assert report.profile == REPORT["profile"]
    assert report.sources == ({"uri": "hf://acme/tiny", "modelId": "acme/tiny", "size": "16060000000"},)


def test_sources_may_be_as_a_template_has_them() -> None:
    sources = [{"modelId": "acme/tiny", "uri": "s3://weights/tiny", "size": "16Gi"}, {"uri": "hf://acme/draft"}]
    assert read_report(json.dumps({"profile": {}, "modelSources": sources})).sources == tuple(sources)


def test_a_report_without_sources_has_none() -> None:
    assert read_report('{"profile": {"a": 1}}').sources == ()


def nested(levels: int) -> str:
    return '{"profile": ' + '{"a": ' * levels + "1" + "}" * levels + "}"


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (None, "without an output"),
        ("", "without an output"),
        ("  \n", "without an output"),
        ("INFO starting\n" + json.dumps(REPORT), "no JSON"),
        (json.dumps(REPORT) + "\ndone", "no JSON"),
        ("{'profile': {}}", "no JSON"),
        ('{"profile": NaN}', "no JSON"),
        ('{"profile": {"a": Infinity}}', "no JSON"),
        ('{"profile": {', "no JSON"),
        ("x" * 10_000_000, "10000000 bytes"),
        ("[" * 1000, "no JSON"),
        (nested(1000)[:MAX_OUTPUT], "no JSON"),
        ("[" * 1000 + "]" * 1000, "no JSON object"),
        (nested(MAX_DEPTH + 1), "nested more than 16 levels"),
        (nested(300), "nested more than 16 levels"),
        ("[]", "an empty list"),
        ("[1]", "no JSON object"),
        ('"profile"', "no JSON object"),
        ("12", "no JSON object"),
        ("null", "no JSON object"),
        ("{}", "no object 'profile'"),
        ('{"profile": []}', "no object 'profile'"),
        ('{"profile": {}, "models": {}}', "no list"),
        ('{"profile": {}, "models": [1]}', "model source 0"),
        ('{"profile": {}, "models": [{"source": "file:///etc/passwd"}]}', "model source 0"),
        ('{"profile": {}, "models": [{"source": "hf://a/../b"}]}', "model source 0"),
        ('{"profile": {}, "models": [{"source": "hf://a/b", "name": ""}]}', "model id"),
        ('{"profile": {}, "models": [{"source": "hf://a/b", "name": "a\\u0000b"}]}', "model id"),
        ('{"profile": {}, "models": [{"source": "hf://a/b", "size_gb": 1e400}]}', "no "),
        ('{"profile": {}, "models": [{"source": "hf://a/b", "size_gb": true}]}', "size_gb"),
        ('{"profile": {}, "models": [{"source": "hf://a/b", "size_gb": -1}]}', "size_gb"),
        ('{"profile": {}, "modelSources": [{"uri": "hf://a/b", "size": "many"}]}', "quantity"),
        (json.dumps({"profile": {}, "models": [{"source": "hf://a/b"}] * 17}), "at most 16"),
    ],
)
def test_what_cannot_be_read_has_a_reason(output: object, why: str) -> None:
    with pytest.raises(Unreadable, match=why) as raised:
        read_report(output)
    assert len(str(raised.value)) < 300
    assert "\n" not in str(raised.value)


def test_a_credential_in_an_output_is_not_repeated() -> None:
    with pytest.raises(Unreadable) as raised:
        read_report("token hf_" + "a" * 34)
    assert "a" * 34 not in str(raised.value)
