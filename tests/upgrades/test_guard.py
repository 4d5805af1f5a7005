"""A CRD of ours that would take something from objects is refused, and it is said from which."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.console import Ran, ran_now

from airunway.api import names
from airunway.api.crds import custom_resource_definitions, to_yaml
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import CUSTOM_RESOURCE_DEFINITION, Client
from airunway.resource import ObjectKey, Resource, copy_of
from airunway.upgrades.definitions import MANAGER, harms
from airunway_testing.operator import install_definitions, remove_leftovers

NAME = "modeldeployments.airunway.ai"


def definition(change: Callable[[Resource], object] = lambda _: None) -> Resource:
    """Our CRD of ModelDeployments with something changed in its only version."""
    crd = next(copy_of(crd) for crd in custom_resource_definitions() if crd["metadata"]["name"] == NAME)
    change(crd["spec"]["versions"][0])
    return crd


def spec_of(version: Resource) -> Resource:
    found: Resource = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    return found


def deployment(name: str, namespace: str = "ml", **spec: object) -> Resource:
    metadata = {"name": name, "namespace": namespace}
    body = {"apiVersion": names.API_VERSION, "kind": "ModelDeployment", "metadata": metadata}
    return {**body, "spec": {"model": {"id": "org/model"}, **spec}}


def renamed(version: Resource) -> None:
    version["name"] = "v1beta1"


LIVE = {**definition(), "status": {"storedVersions": ["v1alpha1"]}}
OBJECTS = {"v1alpha1": [deployment("b", image="x:1"), deployment("a", image="x:1"), deployment("c", suspend=True)]}


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (definition(), []),
        (definition(lambda version: spec_of(version).pop("affinity")), []),
        (
            definition(lambda version: spec_of(version).pop("image")),
            [f"{NAME}: it drops spec.image, in 2 objects: ml/a, ml/b"],
        ),
        (
            definition(lambda version: spec_of(version)["image"].update(maxLength=2)),
            [f"{NAME}: it does not allow spec.image: 'x:1' is too long, in 2 objects: ml/a, ml/b"],
        ),
        (
            definition(lambda version: version.update(served=False)),
            [f"{NAME}: it no longer serves v1alpha1, in 3 objects: ml/a, ml/b, ml/c"],
        ),
        (
            definition(renamed),
            [
                f"{NAME}: objects may still be stored as v1alpha1 (status.storedVersions), which the new CRD lacks",
                f"{NAME}: it no longer serves v1alpha1, in 3 objects: ml/a, ml/b, ml/c",
            ],
        ),
    ],
)
def test_what_a_new_crd_would_take_is_said_with_the_objects(new: Resource, said: list[str]) -> None:
    assert [str(harm) for harm in harms(new, LIVE, OBJECTS)] == said


def test_the_scope_cannot_be_changed_and_a_crd_that_is_not_there_harms_nobody() -> None:
    crd = definition()
    crd["spec"]["scope"] = "Cluster"
    assert [harm.what for harm in harms(crd, LIVE, {})] == ["spec.scope cannot be changed from Namespaced to Cluster"]
    assert harms(crd, None, {}) == []


def test_what_objects_have_lost_already_is_no_harm_of_the_new_one() -> None:
    live = {**definition(lambda version: spec_of(version).pop("image")), "status": {"storedVersions": ["v1alpha1"]}}
    assert harms(definition(lambda version: spec_of(version).pop("image")), live, OBJECTS) == []


# ------------------------------------------------------------------------------------------------------- the command


def run(kubeconfig: Path, *arguments: str) -> Ran:
    return ran_now("crds", *arguments, "--kubeconfig", str(kubeconfig))


@pytest.mark.apiserver
@pytest.mark.slow
async def test_a_crd_that_drops_a_field_in_use_is_refused_and_nothing_is_written(
    client: Client, kubeconfig: Path, namespace: str, tmp_path: Path
) -> None:
    await install_definitions(client)
    await remove_leftovers(client)
    for name in ("one", "two"):
        await client.create(MODEL_DEPLOYMENT, deployment(name, namespace, image="x:1"))
    await client.create(MODEL_DEPLOYMENT, deployment("three", namespace))
    path = tmp_path / "crds.yaml"
    path.write_text(to_yaml([definition(lambda version: spec_of(version).pop("image"))]))
    for mode in ("--check", "--apply"):
        done = run(kubeconfig, mode, "-f", str(path))
        assert done.code == 3
        # Of the whole cluster: what other tests have left may be among them.
        (told,) = done.out.splitlines()
        assert told.startswith(f"{NAME}: it drops spec.image, in ")
        assert f"{namespace}/one, {namespace}/two" in told
        assert f"{namespace}/three" not in told
    live = await client.get(CUSTOM_RESOURCE_DEFINITION, ObjectKey("", NAME))
    assert "image" in spec_of(live["spec"]["versions"][0])

    current = yaml.load(kubeconfig.read_text(), Loader=yaml.CSafeLoader)["current-context"]
    done = run(kubeconfig, "--check", "--context", current)
    assert (done.code, "takes nothing from any object" in done.out) == (0, True)


@pytest.mark.apiserver
@pytest.mark.slow
async def test_apply_puts_them_there_and_leaves_those_of_another_tool_alone(
    client: Client, kubeconfig: Path, tmp_path: Path
) -> None:
    await install_definitions(client)
    await remove_leftovers(client)
    path = tmp_path / "crds.yaml"
    path.write_text(
        to_yaml([definition(lambda version: spec_of(version)["image"].update(description="Another word."))])
    )
    done = run(kubeconfig, "--apply", "-f", str(path))
    assert done.code == 1
    assert "another tool owns these CRDs" in done.err
    assert "airunway-testing" in done.err
    assert run(kubeconfig, "--apply").code == 0
    live = await client.get(CUSTOM_RESOURCE_DEFINITION, ObjectKey("", NAME))
    assert MANAGER in {entry["manager"] for entry in live["metadata"]["managedFields"]}
    # So that the tests after this one may change them as ever.
    await client.merge_patch(CUSTOM_RESOURCE_DEFINITION, ObjectKey("", NAME), {"metadata": {"managedFields": [{}]}})
    await install_definitions(client)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--check", "--apply"), "use only one of"),
        (("--write", "there", "-f", "x.yaml"), "cannot be used with --filename"),
    ],
)
def test_options_that_exclude_each_other_are_named(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    done = run(tmp_path / "none", *arguments)
    assert done.code == 2
    assert says in " ".join(done.err.split())
