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
