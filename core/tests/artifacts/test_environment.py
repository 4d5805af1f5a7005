"""Variables of download Jobs: those that the downloader reads, and no others."""

from __future__ import annotations

import pytest

from airunway.artifacts.jobs import ENVIRONMENT, JobStep, bound_to, environment_fault, job_of
from airunway.configs.resolution import EffectiveConfig, Scope
from airunway.resource import Resource


def artifact(*names: str) -> Resource:
    env = [{"name": name, "value": "/cache/model"} for name in names]
    return {"metadata": {"name": "a", "uid": "u"}, "spec": {"source": {"uri": "hf://o/m"}, "env": env}}


def variables(job: Resource) -> dict[str, object]:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each.get("value") for each in container["env"]}


def job(found: Resource, config: EffectiveConfig | None = None) -> Resource:
    return job_of(found, JobStep.DOWNLOAD, name="j", image="i", revision="", claim="c", config=config)


@pytest.mark.parametrize("name", ["PYTHONPATH", "LD_PRELOAD", "OPENSSL_CONF", "PATH", "hf_token", "X_PROXY", ""])
def test_h2_another_variable_is_named_with_those_that_are_allowed(name: str) -> None:
    fault = environment_fault(artifact("HF_ENDPOINT", name))
    assert fault.startswith(f"spec.env[1].name: the downloader gets no variable {name}")
    assert all(allowed in fault for allowed in ENVIRONMENT)


def test_h2_what_the_downloader_reads_passes() -> None:
    read = ("HF_TOKEN", "AWS_REGION", "https_proxy", "NO_PROXY", "SSL_CERT_FILE", "AIRUNWAY_STALL_SECONDS")
    assert environment_fault(artifact(*read)) == ""
    assert set(variables(job(artifact(*read)))) >= set(read)


def test_h2_of_a_config_only_what_the_downloader_reads_reaches_a_job() -> None:
    env = [{"name": name, "value": "x"} for name in ("VLLM_LOGGING_LEVEL", "HF_ENDPOINT", "PYTHONPATH", "HTTPS_PROXY")]
    config = EffectiveConfig(name="default", namespace="n", scope=Scope.NAMESPACE, hash="0", spec={"env": env})
    assert set(variables(job(artifact(), config))) == {"HF_ENDPOINT", "HTTPS_PROXY", "AIRUNWAY_ARTIFACT_UID"}


def test_l5_a_job_tells_the_uid_of_its_claim_whatever_the_artifact_says() -> None:
    made = bound_to(job(artifact("AIRUNWAY_CLAIM_UID")), {"metadata": {"uid": "uid-of-the-claim"}})
    assert variables(made)["AIRUNWAY_CLAIM_UID"] == "uid-of-the-claim"
    container = made["spec"]["template"]["spec"]["containers"][0]
    assert [each["name"] for each in container["env"]].count("AIRUNWAY_CLAIM_UID") == 1
