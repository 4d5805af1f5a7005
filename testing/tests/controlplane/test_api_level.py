"""The level "api": a real API server with garbage collection."""

import json
from pathlib import Path

import pytest
import yaml

from airunway_testing.controlplane import Cluster
from airunway_testing.fixtures import Kubectl

pytestmark = pytest.mark.apiserver


def test_applies_and_reads_back(kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "configmap", "settings", "--from-literal=colour=green", "-n", namespace)
    shown = json.loads(kubectl("get", "configmap", "settings", "-n", namespace, "-o", "json").stdout)
    assert shown["data"] == {"colour": "green"}


def test_user_without_rights_is_refused_and_gets_what_a_role_gives(
    control_plane: Cluster, kubectl: Kubectl, namespace: str
) -> None:
    ada = control_plane.kubeconfig_for("ada", ["readers"])
    refused = kubectl("get", "configmaps", "-n", namespace, kubeconfig=ada, check=False)
    assert refused.returncode != 0
    assert 'User "ada" cannot list resource "configmaps"' in refused.stderr

    kubectl("create", "rolebinding", "readers", "--clusterrole=view", "--group=readers", "-n", namespace)
    assert kubectl("get", "configmaps", "-n", namespace, kubeconfig=ada).returncode == 0
    written = kubectl("create", "configmap", "mine", "-n", namespace, kubeconfig=ada, check=False)
    assert 'User "ada" cannot create resource "configmaps"' in written.stderr


def test_service_account_token_authenticates(control_plane: Cluster, kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "serviceaccount", "robot", "-n", namespace)
    token = kubectl("create", "token", "robot", "-n", namespace).stdout.strip()
    nobody = control_plane.kubeconfig.with_name("nobody.kubeconfig")
    content = yaml.safe_load(control_plane.kubeconfig.read_text())
    content["users"][0]["user"] = {"token": token}
    nobody.write_text(yaml.safe_dump(content))
    shown = kubectl("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}", kubeconfig=nobody)
    assert shown.stdout == f"system:serviceaccount:{namespace}:robot"


def test_audit_log_names_the_write_and_the_writer(
    control_plane: Cluster, kubectl: Kubectl, namespace: str, audit_log: Path
) -> None:
    kubectl("create", "configmap", "witnessed", "-n", namespace)
    events = [json.loads(line) for line in audit_log.read_text().splitlines()]
    writes = [
        event
        for event in events
        if event["verb"] == "create"
        and event.get("objectRef", {}).get("namespace") == namespace
        and event["objectRef"].get("name") == "witnessed"
    ]
    assert [event["user"]["username"] for event in writes] == ["admin"]
    assert writes[0]["responseStatus"]["code"] == 201


def test_dependants_go_with_their_owner(kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "configmap", "owner", "-n", namespace)
    uid = kubectl("get", "configmap", "owner", "-n", namespace, "-o", "jsonpath={.metadata.uid}").stdout
    dependant = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "dependant",
            "namespace": namespace,
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}],
        },
    }
    kubectl("create", "-f", "-", stdin=json.dumps(dependant))
    kubectl("delete", "configmap", "owner", "-n", namespace)
    kubectl("wait", "--for=delete", "configmap/dependant", "-n", namespace, "--timeout=60s")
