"""KubeRay's provider is held against what every provider must hold, as anybody else's."""

from airunway_testing.conformance.checks import problems


def test_it_conforms() -> None:
    assert list(problems("kuberay")) == []
