"""What an image reported: what is read, and why the rest is not."""

from __future__ import annotations

import base64
import gzip
import json
from time import process_time

import pytest

from airunway_catalogue.discovery import MAX_MESSAGE, MAX_OUTPUT, PACKED, PROBLEM
from airunway_catalogue.outcomes import MAX_DEPTH, MAX_PROFILE, Unreadable, read_report

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
    assert report.sources == ({"uri": "hf://acme/tiny", "modelId": "acme/tiny", "size": "17244293694"},)


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
        ("INFO starting: " + json.dumps(REPORT), "no JSON"),
        ("x" * (MAX_MESSAGE - 2), "cut at 4 KiB"),
        ('[INFO] starting\n{"level": "info"}', "no object 'profile'"),
        ("[INFO] no profile fits\n[]\n", "an empty list"),
        ("{'profile': {}}", "no JSON"),
        ('{"profile": NaN}', "no JSON"),
        ('{"profile": {"a": Infinity}}', "no JSON"),
        ('{"profile": {', "no JSON"),
        ("x" * 10_000_000, "10000000 bytes"),
        ("[" * 1000, "no JSON"),
        (nested(1000)[:MAX_MESSAGE], "no JSON"),
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
        (json.dumps({"profile": {"a": "x" * MAX_PROFILE}}), f"the profile has {MAX_PROFILE + 8} bytes as JSON"),
        (PACKED + "AAAA", "damaged or was cut"),
        (PACKED + "é", "damaged or was cut"),
        (PROBLEM, "it begins with"),
        (PROBLEM + "tool \u0007 1", "it begins with"),
        (PROBLEM + "large x y", "it begins with"),
        (PROBLEM + "large 50000 14000", "has 50000 bytes, and 14000 when it is compressed; at most 12288"),
        (PROBLEM + "endless 262144", "more than 262144 bytes"),
        (PROBLEM + "tool gzip 5000", "has 5000 bytes, and the image has no gzip: without it at most 4096"),
        (PROBLEM + "tool head", "the image has no head"),
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


# ------------------------------------------------------------------------------------------------------------ in noise

LINES = json.dumps(REPORT, indent=2)


@pytest.mark.parametrize(
    "output",
    [
        f"INFO starting\n{json.dumps(REPORT)}",
        f"{json.dumps(REPORT)}\ndone",
        f"[INFO] 2026-01-01 starting\n[1/3] loading\n{{not json\n{LINES}\nbye\n",
        f'{{"level": "info"}}\n{json.dumps([REPORT])}\n{{"level": "info", "msg": "done"}}\n',
        f'[NaN]\n{{"profile": NaN}}\n{json.dumps(REPORT)}',
        f"{json.dumps({'profile': {'old': 1}})}\nagain\n{LINES}",
        "[" * 2000 + f"\n{json.dumps(REPORT)}",
        f"[{'1' * 5000}\n{json.dumps(REPORT)}",
        "[2026-01-01 INFO] a line of a log, as long as such lines are, and there are many of them\n" * 2500
        + json.dumps(REPORT),
    ],
    ids=["before", "after", "brackets", "json-lines", "nan", "last", "nested", "digits", "many"],
)
def test_the_report_is_found_between_lines_of_a_log(output: str) -> None:
    assert read_report(output).profile == REPORT["profile"]


@pytest.mark.parametrize(
    "line", ["[", "{", "[1,", '{"a":', '{"a": 1,', '["', "[[[[[[", "[NaN]", "[1]", '["x",', "[\n{"]
)
def test_an_output_of_any_lines_takes_no_long_time(line: str) -> None:
    output = f"{line}\n" * (MAX_OUTPUT // (len(line) + 1))
    before = process_time()
    with pytest.raises(Unreadable):
        read_report(output)
    assert process_time() - before < 10, "quadratic time would be minutes"


# ---------------------------------------------------------------------------------------------------------- compressed


def packed(content: bytes) -> str:
    return PACKED + base64.b64encode(gzip.compress(content)).decode()


def test_a_compressed_output_is_read() -> None:
    noise = b"\xff INFO\n" * 1000
    assert read_report(packed(noise + json.dumps(REPORT).encode())).profile == REPORT["profile"]


@pytest.mark.parametrize("end", [-1, -4, -40, 30])
def test_a_compressed_output_that_was_cut_says_so(end: int) -> None:
    content = json.dumps({"profile": {str(number): hash(str(number)) for number in range(300)}}).encode()
    with pytest.raises(Unreadable, match=r"damaged or was cut: a pod has 12 KiB .*injected"):
        read_report(packed(content)[:end])


def test_no_more_is_unpacked_than_may_be_read() -> None:
    with pytest.raises(Unreadable, match=f"more than {MAX_OUTPUT} bytes"):
        read_report(packed(b" " * 200 * 2**20))
