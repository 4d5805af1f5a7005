"""The account of what a translation read."""

from airunway.sdk import ignored_fields, parse_deployment, tracked


def test_a_method_of_the_deployment_itself_sees_all_of_it() -> None:
    deployment = parse_deployment(
        {"metadata": {"name": "m"}, "spec": {"model": {"id": "o/m"}, "nodeSelector": {"a": "b"}}}
    )
    view, reads = tracked(deployment)
    assert [finding.path for finding in ignored_fields(deployment, reads)] == ["spec.model.id", "spec.nodeSelector"]
    view.to_resource()
    assert list(ignored_fields(deployment, reads)) == []


def test_labels_and_annotations_of_the_deployment_that_a_translation_looked_at() -> None:
    """A change of them is worth a pass only then."""
    deployment = parse_deployment({"metadata": {"name": "m"}, "spec": {"model": {"id": "o/m"}}})
    view, reads = tracked(deployment)
    assert (view.metadata.name, view.spec.to_essence()) == ("m", deployment.spec.to_essence())
    assert reads.metadata == set()
    assert view.metadata.annotations == {}
    assert reads.metadata == {"annotations"}
    view, reads = tracked(deployment)
    view.metadata.model_dump()
    assert reads.metadata == {"labels", "annotations"}
    view, reads = tracked(deployment)
    view.to_resource()
    assert reads.metadata == {"labels", "annotations"}, "also where there are none yet"
