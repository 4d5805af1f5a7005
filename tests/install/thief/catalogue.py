"""What a thief tries with the token of the catalogue."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from tests.catalogue.test_guard import (
    MORE,
    OF_SECRET,
    OTHER_FORMS,
    OTHER_FORMS_WITHOUT_THE_SCRIPT,
    container,
    made_templates,
    pod,
)
from tests.install.thief.attempt import OPERATOR, Attempt, customer_of, moved
from tests.install.thief.provider import of_any_account

from airunway.api import names
from airunway.kinds import CLUSTER_MODEL_TEMPLATE, MODEL_TEMPLATE
from airunway.kube import JOB
from airunway.resource import Resource, copy_of
from airunway_catalogue.discovery import Entrypoint, Request, job_of
from airunway_catalogue.labels import Recommendation

NAMESPACE = customer_of("catalogue")


def discovery(*, known: bool = True, home: bool = False, owner: str = "ModelTemplate") -> Resource:
    """A Job as the catalogue makes it, of a template that the thief claims; its entrypoint may be `known`."""
    name, namespace = "discover-tiny-0a1b2c3d", OPERATOR if home else NAMESPACE
    entrypoint = Entrypoint(words=("serve",)) if known else Entrypoint(why="Timeout")
    template = {"metadata": {"name": "tiny", "namespace": namespace}}
    made = job_of(template, Request(image="a.example/m:1"), name=name, config=None, entrypoint=entrypoint)
    reference = {"apiVersion": names.API_VERSION, "kind": owner, "name": "tiny", "uid": "0", "controller": True}
    made["metadata"] |= {"namespace": namespace, "ownerReferences": [reference]}
    return made


def honest_of_the_catalogue() -> list[Attempt]:
    """What the catalogue writes, which its guard allows."""
    jobs = [discovery(), discovery(known=False), discovery(home=True, owner="ClusterModelTemplate")]
    templates = made_templates(Recommendation())
    return [_created("honest", "as written", "(allowed)", body) for body in (*jobs, *templates)]


def of_the_catalogue() -> Iterator[Attempt]:
    """All attempts of the catalogue's account."""
    for attempt in of_any_account("kaito"):
        # Of templates it writes the status, and makes some of the cluster.
        if attempt.kind == CLUSTER_MODEL_TEMPLATE or (attempt.kind == MODEL_TEMPLATE and attempt.subresource):
            continue
        yield moved(attempt, NAMESPACE)
    yield Attempt(
        family="templates",
        what="an administrator's",
        verb="patch",
        kind=CLUSTER_MODEL_TEMPLATE,
        words="changes nothing of a template but its status",
        namespace="",
        name="fast",
        body={"spec": {"optimized": True}},
    )
    numbers = count(1)
    for known, forms in ((True, OTHER_FORMS), (False, OTHER_FORMS_WITHOUT_THE_SCRIPT)):
        for change, words in forms:
            job = copy_of(discovery(known=known))
            change(job)
            yield _created("forms of Jobs", str(next(numbers)), words, job)
    secret = discovery(home=True, owner="ClusterModelTemplate")
    container(secret)["env"].append(OF_SECRET)
    yield _created("Secrets", "of the operator", "takes no values out of other objects", secret)
    account = discovery(home=True, owner="ClusterModelTemplate")
    pod(account)["serviceAccountName"] = "airunway-controller"
    yield _created("accounts", "of the operator", "runs as the default account", account)
    yield _created("owners", "a cluster's template", "belongs to a template", discovery(owner="ClusterModelTemplate"))
    yield _created("owners", "a ConfigMap", "belongs to a template", discovery(owner="ConfigMap"))
    for more in MORE:
        (template,) = made_templates(Recommendation())
        template["spec"] |= more
        yield _created("templates", f"with {', '.join(more)}", "writes of a template only spec.modelName", template)
    (template,) = made_templates(Recommendation())
    del template["metadata"]["labels"]
    yield _created("templates", "of no source", "makes ClusterModelTemplates with the label", template)


def _created(family: str, what: str, words: str, body: Resource) -> Attempt:
    kind = JOB if body["kind"] == JOB.kind else CLUSTER_MODEL_TEMPLATE
    metadata = body["metadata"]
    namespace = metadata.get("namespace", "")
    return Attempt(
        family=family,
        what=what,
        verb="create",
        kind=kind,
        words=words,
        namespace=namespace,
        name=metadata["name"],
        body=body,
    )
