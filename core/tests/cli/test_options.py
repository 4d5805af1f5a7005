"""Every option of every command is named in the help and used in a test.

`SEEN` says which test. That is checked: the test exists, and the option stands as a text in it, or in a function or
fixture of its file (or of the conftest.py beside it) that it calls or asks for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from tools.cli_page import commands, generated
from tools.generated import stale

from airunway.cli.main import app

ROOT = Path(__file__).parents[3]

PROCESSES = "core/tests/cli/test_processes.py"
EXPLAIN = "core/tests/cli/test_explain.py"
RENDER = "core/tests/cli/test_render.py"
TEMPLATE = "core/tests/cli/test_template.py"
CORE = f"{PROCESSES}::test_the_core_does_as_its_options_say"
CATALOGUE = f"{PROCESSES}::test_the_catalogue_does_as_its_options_say"
PROVIDER = f"{PROCESSES}::test_a_provider_does_as_its_options_say"
WEBHOOK = f"{PROCESSES}::test_the_webhook_does_as_its_options_say"
GUARD = "tests/upgrades/test_guard.py::test_a_crd_that_drops_a_field_in_use_is_refused_and_nothing_is_written"
PREFLIGHT = "tests/upgrades/test_preflight.py"
CARRIED = "tests/install/test_carried.py"
BY_HELM = f"{CARRIED}::test_with_helm_each_part_is_a_release_that_helm_goes_on_with"
ON_CLUSTER = f"{CARRIED}::test_the_cluster_of_a_context_is_meant"
PRINTED = f"{CARRIED}::test_without_helm_kubectl_applies_prunes_and_deletes_what_is_printed"
DOCTOR = "tests/doctor/test_doctor.py::test_its_options_do_as_they_say"
SEVERAL = f"{PROCESSES}::test_everything_in_one_process_does_as_its_options_say"
SIMULATE = f"{PROCESSES}::test_a_simulated_operator_does_as_its_options_say"
SANDBOX = f"{PROCESSES}::test_a_sandbox_on_a_cluster_that_is_there"
SANDBOX_PAGE = "tests/test_sandbox.py::test_a_sandbox_does_what_its_page_shows_and_leaves_nothing_behind"
SANDBOX_KILLED = "tests/test_sandbox.py::test_killing_the_sandbox_leaves_no_process_behind"
CONTROL_PLANE = "testing/tests/controlplane/test_command_line.py"

COMMON_OPTIONS = (
    "--kubeconfig",
    "--context",
    "--watch-namespaces",
    "--leader-elect",
    "--log-level",
    "--log-format",
    "--health-probe-bind-address",
    "--metrics-bind-address",
)
CORE_OPTIONS = {
    "--enable-provider-selector": f"{PROCESSES}::test_an_error_is_all_that_is_logged_at_that_level",
    **dict.fromkeys(("--no-enable-provider-selector", "--policy", "--guard-parameters"), CORE),
    **dict.fromkeys(("--gateway", "--gateway-name", "--gateway-namespaces", "--epp-image", "--epp-version"), CORE),
    **dict.fromkeys(("--model-cache", "--downloader-image", "--max-downloads"), CORE),
    "--webhook-access-review-pods": WEBHOOK,
    "--webhook-bind-address": WEBHOOK,
    "--webhook-service": "core/tests/webhook/test_command.py::test_a_wrong_option_is_named",
    "--webhook-url": WEBHOOK,
    "--webhook-secret": WEBHOOK,
    "--webhook-configuration": WEBHOOK,
    "--webhook-manage-configuration": WEBHOOK,
    "--webhook-access-review": WEBHOOK,
    "--webhook-access-review-routes": WEBHOOK,
    "--no-webhook-access-review-routes": WEBHOOK,
    "--no-webhook-access-review": WEBHOOK,
    "--webhook-client-ca": "core/tests/webhook/test_hostile_clients.py::"
    "test_a_file_without_authorities_ends_the_start_and_is_named",
}
FIT = "core/tests/cli/test_fit.py"
_PIPELINE = "test_a_model_that_fits_on_no_node_is_a_pipeline_by_a_provider_that_spans_nodes"
LOGS = "tests/view/test_logs.py"
STATUS = "tests/view/test_status.py"
CHAT = "tests/view/test_chat.py"
TOP = "tests/view/test_top.py"
BESIDE = "core/tests/cli/test_beside.py"
REPORT = "testing/tests/test_conformance_report.py"
UI = "tests/ui/test_command.py"
SKELETON = "testing/tests/scaffold/test_skeleton.py"

SEEN: dict[str, dict[str, str]] = {
    "crds": {
        "--write": "core/tests/validation/test_commands.py::test_crds_writes_files",
        **dict.fromkeys(("--check", "--apply", "-f", "--kubeconfig", "--context"), GUARD),
    },
    "explain": {
        "-f": f"{EXPLAIN}::test_a_table_of_every_candidate",
        "-n": f"{EXPLAIN}::test_the_policy_of_the_controller_counts",
        "--providers": f"{EXPLAIN}::test_a_table_of_every_candidate",
        "--policy": f"{EXPLAIN}::test_the_policy_of_the_controller_counts",
        "--why-not": f"{EXPLAIN}::test_what_would_still_not_be_selected_is_said",
        "-o": f"{EXPLAIN}::test_what_would_still_not_be_selected_is_said",
        "--runtime-config": f"{EXPLAIN}::test_the_config_is_shown_with_the_origin_of_each_field_and_the_route",
        "--kubeconfig": f"{EXPLAIN}::test_a_deployment_of_the_cluster",
        "--context": f"{EXPLAIN}::test_a_deployment_of_the_cluster",
    },
    "diff": dict.fromkeys(
        ("-f", "-n", "-o", "--kubeconfig", "--context"),
        "tests/diff/test_command.py::test_it_exits_as_kubectl_diff_and_prints_what_happens",
    ),
    "validate": dict.fromkeys(
        ("--policy", "-n"), "core/tests/validation/test_commands.py::test_h6_the_policy_of_the_controller_counts"
    ),
    "render": {
        "-f": f"{RENDER}::test_objects_come_complete",
        "--provider": f"{RENDER}::test_what_cannot_be_is_said_and_fails",
        "-n": f"{RENDER}::test_objects_come_complete",
        "--upstream-version": f"{RENDER}::test_an_older_upstream_gets_what_it_knows",
        "--set": f"{RENDER}::test_a_setting_of_the_provider_reaches_what_is_made",
        "-o": f"{RENDER}::test_json_and_overrides",
        "--policy": f"{RENDER}::test_what_a_policy_allows_is_rendered_with_it",
        "--runtime-config": f"{RENDER}::test_a_deployment_follows_the_runtime_configs_that_are_given",
        **dict.fromkeys(
            ("--kubeconfig", "--context"), f"{TEMPLATE}::test_a_template_that_is_not_given_is_looked_for_in_the_cluster"
        ),
    },
    "template list": {
        **dict.fromkeys(
            ("-A", "-n", "-f", "-o"), f"{TEMPLATE}::test_list_shows_both_scopes_with_phase_hardware_and_users"
        ),
        **dict.fromkeys(("--kubeconfig", "--context"), f"{TEMPLATE}::test_the_templates_of_a_cluster"),
    },
    "template show": {
        **dict.fromkeys(
            ("-n", "-f", "-o"), f"{TEMPLATE}::test_show_says_what_a_template_gives_and_what_of_it_is_ignored"
        ),
        **dict.fromkeys(("--kubeconfig", "--context"), f"{TEMPLATE}::test_the_templates_of_a_cluster"),
    },
    "template render": {
        **dict.fromkeys(
            ("-n", "-f", "-o"), f"{TEMPLATE}::test_render_prints_a_deployment_that_runs_without_the_template"
        ),
        **dict.fromkeys(("--kubeconfig", "--context"), f"{TEMPLATE}::test_the_templates_of_a_cluster"),
    },
    "template why": {
        **dict.fromkeys(
            ("-n", "-f", "-o", "--metric", "--precision"),
            f"{TEMPLATE}::test_why_shows_every_candidate_in_order_and_what_speaks_against_it",
        ),
        **dict.fromkeys(("--kubeconfig", "--context"), f"{TEMPLATE}::test_the_templates_of_a_cluster"),
    },
    "doctor": {**dict.fromkeys(("-n", "-o", "--failure-threshold", "--ignore", "--kubeconfig", "--context"), DOCTOR)},
    "install": dict.fromkeys(("--kubeconfig", "--context"), ON_CLUSTER)
    | dict.fromkeys(("--catalogue", "--providers", "-n", "--timeout"), BY_HELM)
    | {"--dry-run": ON_CLUSTER, "--registry": f"{CARRIED}::test_a_registry_of_which_no_image_can_be_pulled_is_refused"},
    "upgrade": dict.fromkeys(("--kubeconfig", "--context"), ON_CLUSTER)
    | dict.fromkeys(("-n", "--timeout", "--dry-run"), BY_HELM)
    | {"--registry": f"{CARRIED}::test_a_registry_of_which_no_image_can_be_pulled_is_refused"},
    "uninstall": dict.fromkeys(("--kubeconfig", "--context", "--providers"), ON_CLUSTER)
    | dict.fromkeys(("-n", "--dry-run", "--yes"), BY_HELM),
    "manifests": dict.fromkeys(("--catalogue", "--providers", "--no-core", "-n", "--registry"), PRINTED)
    | dict.fromkeys(("--core", "--for-deletion"), PRINTED),
    "preflight": {
        **dict.fromkeys(
            ("--upstream", "-f", "-n", "--set", "-o"),
            "tests/upgrades/test_preflight_files.py::test_deployments_of_a_file_need_no_cluster",
        ),
        **dict.fromkeys(
            ("--recordings", "--kubeconfig", "--context"), f"{PREFLIGHT}::test_the_cluster_of_a_context_is_asked"
        ),
    },
    "simulate": dict.fromkeys(("--kubeconfig", "--context", "--level", "--scenario"), SIMULATE),
    "catalogue": dict.fromkeys(("--max-discoveries", *COMMON_OPTIONS), CATALOGUE),
    "controller": {**CORE_OPTIONS, **dict.fromkeys(COMMON_OPTIONS, CORE)},
    "run": {
        # The core's and the providers' are defined once, in `airunway.cli.process_options`.
        **CORE_OPTIONS,
        **dict.fromkeys(("--set", "--unknown-schema", "--policy", *COMMON_OPTIONS), SEVERAL),
    },
    "status": {
        **dict.fromkeys(
            ("-n", "-o"), "tests/rootcause/test_every_provider.py::test_what_a_kubelet_reports_has_the_same_code"
        ),
        **dict.fromkeys(
            ("-A", "-w", "--wait", "--kubeconfig", "--context"),
            f"{STATUS}::test_in_a_pipe_watching_appends_what_changes_until_the_outcome",
        ),
    },
    "chat": {
        **dict.fromkeys(
            ("-n", "--system", "-o", "--max-tokens", "--model", "--kubeconfig"),
            f"{CHAT}::test_an_answer_is_streamed_and_counted",
        ),
        "--raw": f"{CHAT}::test_a_request_as_curl_can_be_pasted",
        **dict.fromkeys(("--as", "--document"), f"{CHAT}::test_a_model_is_asked_for_what_it_does"),
        "--timeout": f"{CHAT}::test_what_is_no_answer_is_one_plain_sentence",
        "--context": f"{CHAT}::test_a_deployment_without_an_endpoint_or_pods_is_explained",
    },
    "top": {
        **dict.fromkeys(("-n", "-A", "-o", "--window", "--context"), f"{TOP}::test_a_table_of_what_engines_report"),
        **dict.fromkeys(("-w", "--kubeconfig"), f"{TOP}::test_watching_takes_rates_from_the_growth_of_counters"),
        "--prometheus": f"{TOP}::test_prometheus_is_asked_five_times_for_any_number_of_deployments",
    },
    "fit": {
        **dict.fromkeys(("-f", "-o"), f"{FIT}::test_the_spec_of_a_file_is_judged"),
        "-n": f"{FIT}::test_free_gpus_of_a_cluster",
        **dict.fromkeys(("--nodes", "--context-length", "--providers"), f"{FIT}::{_PIPELINE}"),
        **dict.fromkeys(("--gpu", "--model-config", "--engine"), f"{FIT}::test_a_directory_is_read_by_its_headers"),
        "--fetch": f"{FIT}::test_a_hub_is_asked_only_with_fetch",
        "--sequences": f"{FIT}::test_several_sequences_share_what_is_left",
        **dict.fromkeys(("--kubeconfig", "--context"), f"{FIT}::test_a_context_that_a_kubeconfig_has_not_is_named"),
    },
    "new": {
        **dict.fromkeys(
            (
                *("-n", "--name", "--engine", "--provider", "--context-length", "--gpus", "--gpu-type", "--replicas"),
                *("--token-secret", "--gpu"),
            ),
            f"{FIT}::test_a_new_manifest_is_valid_and_says_why",
        ),
        **dict.fromkeys(
            ("--nodes", "--model-config", "--fetch"),
            f"{FIT}::test_a_new_manifest_is_for_the_nodes_and_the_config_that_are_given",
        ),
        **dict.fromkeys(
            ("--beside", "--image"),
            f"{BESIDE}::test_what_is_printed_is_applied_and_the_first_is_edited_as_the_remark_says",
        ),
        **dict.fromkeys(("--kubeconfig", "--context"), f"{FIT}::test_a_context_that_a_kubeconfig_has_not_is_named"),
    },
    "ui": {
        "--port": f"{UI}::test_the_link_that_is_printed_opens_the_page_once",
        **dict.fromkeys(("--no-open", "--kubeconfig"), f"{UI}::test_the_link_that_is_printed_opens_the_page_once"),
        **dict.fromkeys(("--open", "--context"), f"{UI}::test_a_cluster_that_is_not_there_is_one_sentence"),
    },
    "logs": {
        **dict.fromkeys(
            ("-n", "-p", "--role", "--all", "--tail", "--since", "--context"),
            f"{LOGS}::test_without_flags_the_run_that_crashed_is_printed",
        ),
        **dict.fromkeys(("-f", "--kubeconfig"), f"{LOGS}::test_following_prints_pods_that_come_and_runs_that_begin"),
    },
    "provider run": {
        "--all": f"{PROCESSES}::test_all_providers_run_without_the_core",
        **dict.fromkeys(("--set", "--unknown-schema", *COMMON_OPTIONS), PROVIDER),
    },
    "provider new": {
        "--directory": f"{SKELETON}::test_it_goes_where_it_is_told_to_and_nowhere_else",
        **dict.fromkeys(("--crd", "--kind", "--version"), f"{SKELETON}::test_a_crd_says_what_the_skeleton_is_of"),
    },
    "provider check": {
        **dict.fromkeys(
            ("--cluster", "--kubeconfig", "--context"),
            f"{REPORT}::test_a_cluster_that_cannot_be_asked_is_one_sentence",
        ),
        **dict.fromkeys(
            ("--i-know", "--patience"),
            f"{REPORT}::test_the_examination_in_a_cluster_is_given_what_the_author_knows_and_the_patience",
        ),
        **dict.fromkeys(
            ("--rule", "--skip", "--report"), f"{REPORT}::test_a_skipped_rule_has_its_reason_in_the_report"
        ),
    },
    "provider schema": {
        "--kind": "core/tests/cli/test_schema.py::test_of_several_kinds_one_can_be_named",
        "-o": "core/tests/cli/test_schema.py::test_it_prints_the_same_as_json",
    },
    "sandbox": {
        "--demo": "tests/test_sandbox.py::test_the_demo_shows_what_runs_what_cannot_and_what_is_refused",
        **dict.fromkeys(("--level", "--providers", "--upstream-crds", "--kubeconfig", "--context", "--keep"), SANDBOX),
        **dict.fromkeys(("--patience", "--together", "--apart"), SANDBOX),
        "--no-gateway": SANDBOX,
        **dict.fromkeys(("--gateway", "--storage", "--catalogue"), SANDBOX_PAGE),
        **dict.fromkeys(("--no-storage", "--no-catalogue"), SANDBOX_KILLED),
    },
    "controlplane up": dict.fromkeys(
        ("--level", "--name", "--audit", "--detach"), f"{CONTROL_PLANE}::test_up_detached_serves_others_until_down"
    ),
    "controlplane down": {"--name": f"{CONTROL_PLANE}::test_up_detached_serves_others_until_down"},
    "controlplane binaries": dict.fromkeys(
        ("--level", "--cache-folder"), f"{CONTROL_PLANE}::test_binaries_prints_where_they_are"
    ),
}
"""Command → option, in the spelling that the test uses → test."""


def options() -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Command, spellings and help of every documented option; both words of a pair (``--a / --no-a``) are an option."""
    for command in commands():
        for option in command.options:
            for spellings in (option.spellings, option.opposite):
                if spellings:
                    yield command.name, spellings, option.help


def test_the_reference_is_up_to_date() -> None:
    assert stale(generated()) == []


def test_every_option_has_a_help() -> None:
    assert [(command, spellings) for command, spellings, text in options() if not text.strip().endswith(".")] == []


def test_every_option_is_seen_in_a_test() -> None:
    unseen = [
        f"{command} {spellings[0]}"
        for command, spellings, _ in options()
        if not set(spellings) & set(SEEN.get(command, {}))
    ]
    assert unseen == []
    known = {(command, spelling) for command, spellings, _ in options() for spelling in spellings}
    assert [entry for command, entries in SEEN.items() for entry in entries if (command, entry) not in known] == []


@pytest.mark.parametrize("command", SEEN)
def test_the_tests_use_the_options(command: str) -> None:
    unused = [
        f"{option}: {node}" for option, node in SEEN[command].items() if option not in texts_of(*node.split("::"))
    ]
    assert unused == []


def texts_of(file: str, test: str) -> set[str]:
    """The words in the texts of a test with its decorators, and of what it uses of its file and of conftest.py."""
    path = ROOT / file
    functions = functions_of(path.parent / "conftest.py") | functions_of(path)
    assert test in functions, f"{file} has no test {test}"
    words: set[str] = set()
    waiting, done = [test], set[str]()
    while waiting:
        name = waiting.pop()
        done.add(name)
        for node in ast.walk(functions[name]):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                words.update(node.value.split())
            used = {ast.Name: "id", ast.arg: "arg"}.get(type(node), "")
            called = getattr(node, used) if used else ""
            if called in functions and called not in done:
                waiting.append(called)
    return words


def functions_of(path: Path) -> dict[str, ast.AST]:
    """The functions and assigned constants on the top level of a file, by name."""
    found: dict[str, ast.AST] = {}
    for node in ast.parse(path.read_text()).body if path.exists() else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node.value
    return found


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["--enable-provider-selector=false"], (False, False)),
        (["--enable-provider-selector=FALSE", "--leader-elect=true"], (False, True)),
        (["--enable-provider-selector=1", "--leader-elect=0"], (True, False)),
        (["--no-enable-provider-selector", "--leader-elect"], (False, True)),
        ([], (True, False)),
    ],
)
def test_switches_take_a_value_as_in_go(given: list[str], meant: tuple[bool, bool]) -> None:
    """Charts and manifests of the Go project are written so."""
    command = app.get_command(click.Context(app), "controller")
    assert command is not None
    parsed = command.make_context("controller", given).params
    assert (parsed["enable_provider_selector"], parsed["leader_elect"]) == meant


def test_a_switch_takes_no_other_value() -> None:
    done = CliRunner().invoke(app, ["controller", "--leader-elect=maybe"])
    assert done.exit_code == 2
    assert "--leader-elect" in done.stderr
