"""M8, M12, L7: what others wrote is shown without credentials and control characters, bounded, on one line."""

from __future__ import annotations

import json
import logging
import unicodedata
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airunway.cli.printing import as_document
from airunway.plugins.contract import Component, Observation
from airunway.process.logs import _JsonFormatter, _TextFormatter
from airunway.redaction import MESSAGE_LIMIT, bounded, printable, redacted, tail
from airunway.runtime.report import Report, fault_of, provider_status
from airunway.status.conditions import Condition, written
from airunway.status.evidence import TEXT_LIMIT, event_facts, pod_facts
from airunway.status.texts import line_of
from airunway.table import format_table
from airunway_testing.sandbox.table import as_text, row_of

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
ESCAPE = "\x1b]0;owned\x07\x1b[2J\x9b31mx\u202eevil\u2066\nINFO forged: line\r\x00\u200b"

KEY = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
CORES = st.text(KEY, min_size=12, max_size=40).map(lambda text: f"Zq7{text}9X")
FORMS = [
    "HF_TOKEN=hf_{}",
    "hf_{}",
    "Xhf_{}",
    "HF_TOKEN={}",
    "HF_TOKEN='{}'",
    "export MY_VERY_LONG_NAME_THAT_GOES_ON_AND_ON_AND_ON_AND_ON_OF_A_HUGGING_FACE_ACCESS_TOKEN={}",
    "Authorization: Bearer {}",
    "authorization: bearer {}",
    "'Authorization': 'Bearer {}'",
    "Authorization: Basic {}",
    "Authorization: {}",
    "Bearer\n{}",
    "--api-key {}",
    "--api-key={}",
    "--hf-token {}",
    "['--api-key', '{}']",
    '["--api-key","{}"]',
    "api_key=['{}']",
    '{{"token": "{}"}}',
    "{{'password': '{}'}}",
    '{{\\"secret\\": \\"{}\\"}}',
    "password: {}",
    "Password : {}",
    "https://user:{}@hub.example/x",
    "https://{}@hub.example/x",
    "postgres://u:p@{}@db:5432/x",
    "https://hub.example/x?token={}&a=b",
    "https://s3/x?X-Amz-Signature={}",
    "https://x.blob.core.windows.net/m?sv=2024-11-04&se=2030-01-01&sig={}%3D",
    "next%3Dhttps://x/m%3Fsig%3D{}",
    '{{"auths": {{"registry.example": {{"auth": "{}=="}}}}}}',
    '{{\\"auth\\":\\"{}\\"}}',
    "AWS_SECRET_ACCESS_KEY={}",
    "AccountKey={}==;EndpointSuffix=core",
    "client_secret=>{}",
    "got secret: {}",
    "failed to get secret: {}",
    "sk-{}0123456789",
    "ghp_{}0123456789",
    "dckr_pat_{}0123456789",
    "AIza{}0123456789",
    "ya29.{}0123456789",
    "nvapi-{}0123456789",
    "AKIA0123456789ABCDEF {}"[:20] + " token={}",
    "eyJ{}.e30.{}",
    "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
]
AROUND = st.text(st.characters(exclude_characters="=:"), max_size=60) | st.sampled_from(
    [
        "",
        " ",
        "\n",
        "\x1b[31m",
        "token",
        "'",
        '"',
        "://",
        "@",
        "-" * 70,
        "a-" * 70,
        "x" * 300,
        "\u202e",
        "hf_",
        "eyJ",
    ]
)


@settings(max_examples=400)
@given(before=AROUND, form=st.sampled_from(FORMS), core=CORES, after=AROUND)
def test_m12_no_secret_comes_through_whatever_surrounds_it(before: str, form: str, core: str, after: str) -> None:
    text = f"{before}{form.replace('{{', '{').replace('}}', '}').replace('{}', core)} {after}"
    for shown in (redacted(text), bounded(text), tail(text, TEXT_LIMIT), line_of(tail(text, TEXT_LIMIT))):
        assert core not in shown, shown
        assert core[:8] not in shown, shown


@given(filler=st.integers(0, 5000), core=CORES, form=st.sampled_from(FORMS))
def test_m12_a_secret_beside_a_cut_is_not_shown_in_part(filler: int, core: str, form: str) -> None:
    secret = form.replace("{{", "{").replace("}}", "}").replace("{}", core)
    for text in (f"{'x ' * filler}{secret}", f"{secret}{' y' * filler}"):
        for shown in (bounded(text), tail(text, TEXT_LIMIT), bounded(text, 64)):
            assert core[-8:] not in shown
            assert core[:8] not in shown


@pytest.mark.parametrize(
    "text",
    [
        'secret "hf-token" not found',
        "couldn't find key HF_TOKEN in Secret ml/hub",
        "HF_TOKEN environment variable is not set",
        "failed to authorize: failed to fetch oauth token: unexpected status: 401 Unauthorized",
        "failed to fetch anonymous token: unexpected status from GET request to https://hub.example/v2/: 403 Forbidden",
        "failed to get secret: hf-token in namespace: ml, error: Secret not found",
        'failed to get secret: Secret "hf-token" not found',
        "failed to read secret: hub-token",
        "no basic auth credentials",
        "Basic authentication required",
        'Back-off pulling image "docker://name@sha256:0123456789abcdef"',
        "received sig=SIGTERM, auth: handler 'auth' is not registered",
        "spec.secrets.huggingFaceToken: name a Secret of this namespace",
        "The model is gated: accept its licence, then set spec.secrets.huggingFaceToken",
        "https://huggingface.co/meta-llama/Llama-3.1-8B-Instruct/resolve/main/config.json",
    ],
)
def test_what_explains_stays(text: str) -> None:
    assert bounded(text) == text


@given(st.text(st.characters(), max_size=300))
@example(ESCAPE)
@example("\ud800")
def test_l7_what_is_shown_has_no_control_characters(text: str) -> None:
    for shown in (printable(text), bounded(text)):
        assert not any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in shown)
        assert not any(char in shown for char in "\u200b\u200e\u202a\u202e\u2066\u2069\ufeff")
        assert bounded(shown) == bounded(bounded(shown))
    assert len(bounded(text).encode()) <= MESSAGE_LIMIT


@pytest.mark.parametrize("size", [1, 2, 4])
def test_m8_very_long_texts_are_cut_before_they_are_looked_at(size: int) -> None:
    for text in ("a-" * 500_000 * size, "token=" * 200_000 * size, '"' * 1_000_000 * size, "\x1b[" * 500_000 * size):
        assert len(bounded(text).encode()) <= MESSAGE_LIMIT
        assert len(tail(text, TEXT_LIMIT)) <= TEXT_LIMIT


def test_m12_words_of_an_upstream_come_into_a_status_without_their_token() -> None:
    said = f"pull failed: HF_TOKEN=hf_abcdefghijklmnop invalid {ESCAPE}"
    component = Component(name="ProviderResource", ready=False, reason="AuthFailed", message=said)
    report = Report(resource={"kind": "Workspace"}, observation=Observation(components=(component,)))
    deployment = {"metadata": {"name": "a", "namespace": "b", "generation": 1}}
    status, _ = provider_status(deployment, report, faults=[fault_of(component, None)], now=NOW)
    text = json.dumps(status, ensure_ascii=False)
    assert "hf_abcdefghijklmnop" not in text
    assert "HF_TOKEN=***" in status["message"]
    assert status["message"].isprintable()
    assert all(condition["message"].isprintable() for condition in status["conditions"])
    [condition] = written(
        [Condition(type="X", status=False, reason="R", message=said)], previous=[], generation=1, now=NOW
    )
    assert condition["message"] == status["message"]


def test_m12_words_of_pods_and_events_lose_credentials_at_the_door() -> None:
    message = f"Traceback:\npassword:\n  Zq7hunter2222\n{ESCAPE}"
    terminated = {"exitCode": 1, "message": message}
    facts = pod_facts(
        {
            "metadata": {"name": "p"},
            "status": {"containerStatuses": [{"name": "c", "state": {"terminated": terminated}}]},
        }
    )
    assert "hunter2222" not in str(facts)
    assert "hunter2222" not in event_facts({"note": message}).note
    assert all(line.isprintable() for line in event_facts({"note": message}).note.split("\n"))


def record(message: str, error: BaseException | None = None) -> logging.LogRecord:
    raised: Any = (type(error), error, None) if error is not None else None
    return logging.LogRecord("airunway", logging.INFO, "", 0, "%s", (message,), raised)


def test_l7_a_record_of_the_text_log_is_one_line_and_a_traceback_is_marked() -> None:
    said = f"{ESCAPE} token=hf_abcdefghijklmnop"
    first, *rest = _TextFormatter().format(record(said, ValueError(said))).split("\n")
    assert "INFO forged: line" in first
    assert rest
    assert all(line.startswith("  | ") for line in rest)
    assert all(line.isprintable() for line in (first, *rest))
    assert "hf_abcdefghijklmnop" not in first + "".join(rest)


def test_l7_a_record_of_the_json_log_is_printable_json() -> None:
    line = _JsonFormatter().format(record(f"{ESCAPE} token=hf_abcdefghijklmnop", ValueError("password=Zq7hunter2222")))
    assert line.isprintable()
    assert "INFO forged" in json.loads(line)["msg"]
    assert "hf_abcdefghijklmnop" not in line
    assert "hunter2222" not in line


def test_l7_tables_and_documents_bring_nothing_to_the_terminal_but_text() -> None:
    assert len(format_table(["a", "b"], [[ESCAPE, "x"]]).split("\n")) == 2
    assert all(line.isprintable() for line in format_table(["a", "b"], [["x", ESCAPE]], width=80).split("\n"))
    row = row_of({"metadata": {"name": "a"}, "spec": {"model": {"id": ESCAPE}}, "status": {"message": ESCAPE}})
    assert all(line.isprintable() for line in as_text([row]).split("\n"))
    value = {"message": ESCAPE, "two": "a\nb", "tag": "\U000e0041", "nel": "a\x85b"}
    for output, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        document = as_document([value], output)
        assert all(line.isprintable() for line in document.split("\n"))
        assert read(document) == value
