"""Which pods belong to a template's Jobs."""

from __future__ import annotations

from typing import Any

from catalogue.tests.world import template_of

from airunway.kube import AnyReflector
from airunway.process.caches import Caches
from airunway.process.metrics import Metrics
from airunway.resource import Resource, key_of
from airunway_catalogue.caches import MARK, TemplateCaches


def owned_by(kind: str, owner: Resource) -> list[Resource]:
    name, uid = owner["metadata"]["name"], owner["metadata"]["uid"]
    return [{"apiVersion": "v1", "kind": kind, "name": name, "uid": uid, "controller": True}]


def obj(name: str, *, kind: str, owner: tuple[str, Resource], namespace: str = "team") -> Resource:
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}-{namespace}",
        "resourceVersion": "1",
        "labels": {MARK.key: MARK.value},
        "ownerReferences": owned_by(*owner),
    }
    return {"kind": kind, "metadata": metadata}


def fill(cache: Any, *objects: Resource) -> None:
    """Put objects into a cache as its watch would."""
    reflector: Any = cache._source.reflector
    for each in objects:
        reflector._store(key_of(each), None, each)


def template_caches() -> TemplateCaches:
    unused: Any = None  # no API server is asked
    return TemplateCaches(
        Caches(unused, project=lambda each: each, metrics=Metrics("catalogue")),
        home="home",
        on_template=lambda _: None,
        on_nodes=lambda: None,
        on_held=lambda: None,
    )


def test_a_number_of_events_of_one_namespace_is_kept_about_jobs_that_are_not_there() -> None:
    caches = template_caches()
    for number in range(400):
        regarding = {"kind": "Job", "namespace": "thief", "name": f"discover-{number}"}
        metadata = {"name": f"e{number}", "namespace": "thief", "uid": f"u{number}"}
        fill(caches.events.cache, {"metadata": metadata, "type": "Warning", "regarding": regarding})
    assert len(caches.events.cache) == 256


def test_a_pod_of_another_namespace_with_the_uid_of_the_job_does_not_count() -> None:
    caches = template_caches()
    template = template_of()
    job = obj("discover-tiny", kind="Job", owner=("ModelTemplate", template))
    jobs: AnyReflector = caches.jobs.reflector
    fill(jobs, job)
    forged = obj("pod", kind="Pod", owner=("Job", job), namespace="thief")
    fill(caches.pods, forged)
    assert caches.owned(template).jobs == (job,)
    assert caches.owned(template).pods == ()
    pod = obj("pod", kind="Pod", owner=("Job", job))
    fill(caches.pods, pod)
    assert [key_of(each) for each in caches.owned(template).pods] == [key_of(pod)]
