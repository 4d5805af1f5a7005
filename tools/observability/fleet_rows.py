"""Rows about what users see: deployments, providers, admission."""

from __future__ import annotations

from tools.observability.panels import IN_NAMESPACE, OF_PROVIDER, Panel, Row, quantiles

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    (
        "Deployments",
        (
            Panel(
                title="Deployments",
                kind="stat",
                width=4,
                queries=((f"sum(max by (namespace, phase) (airunway_modeldeployments{{{IN_NAMESPACE}}}))", ""),),
                description="All ModelDeployments of the chosen namespaces.",
            ),
            Panel(
                title="Deployments not ready",
                kind="stat",
                width=4,
                queries=(
                    (
                        "count(max by (namespace, name) (airunway_modeldeployment_condition"
                        f'{{type="Ready",status!="True",{IN_NAMESPACE}}})) or vector(0)',
                        "",
                    ),
                ),
                description="Deployments whose condition Ready is not True.",
            ),
            Panel(
                title="Deployments by phase",
                queries=(
                    (
                        f"sum by (phase) (max by (namespace, phase) (airunway_modeldeployments{{{IN_NAMESPACE}}}))",
                        "{{phase}}",
                    ),
                ),
                description="ModelDeployments by phase.",
            ),
            Panel(
                title="Deployments by provider",
                queries=(
                    (
                        f"sum by (provider) (max by (provider, phase) (airunway_deployment_status{{{OF_PROVIDER}}}))",
                        "{{provider}}",
                    ),
                ),
                description="ModelDeployments by the provider that runs them.",
            ),
            Panel(
                title="Time to the first Running",
                unit="s",
                width=12,
                queries=quantiles("airunway_deployment_ready_duration_seconds", "provider"),
                description="From creation until the model served for the first time.",
            ),
            Panel(
                title="Time from Deploying to Running",
                unit="s",
                width=12,
                queries=quantiles("airunway_deployment_provision_duration_seconds", "provider"),
                description="Also after changes and recoveries.",
            ),
            Panel(
                title="Changes of phase",
                width=12,
                queries=(
                    (
                        "sum by (from_phase, to_phase) (increase(airunway_deployment_phase_transitions_total"
                        f"{{{OF_PROVIDER}}}[$__rate_interval]))",
                        "{{from_phase}} to {{to_phase}}",
                    ),
                ),
                description="As the leading core saw them.",
            ),
            Panel(
                title="Replicas",
                width=12,
                queries=(
                    (
                        "sum by (state) (max by (namespace, name, state) "
                        f"(airunway_deployment_replicas{{{IN_NAMESPACE}}}))",
                        "{{state}}",
                    ),
                ),
                description="Desired, ready and available replicas of all chosen deployments.",
            ),
            Panel(
                title="Shares at the gateway",
                width=12,
                queries=(
                    (
                        f"max by (namespace, name, group) (airunway_gateway_share{{{IN_NAMESPACE}}})",
                        "{{namespace}}/{{group}}: {{name}}",
                    ),
                ),
                description="Percent of the requests that each deployment gets of what its group shares.",
            ),
            Panel(
                title="Phase of each deployment",
                kind="table",
                width=12,
                queries=((f"max by (namespace, name, phase) (airunway_deployment_phase{{{IN_NAMESPACE}}})", ""),),
                description="Each deployment with its phase.",
            ),
            Panel(
                title="Provider, engine and model of each deployment",
                kind="table",
                width=12,
                queries=(
                    (
                        "max by (namespace, name, provider, engine, model) "
                        f"(airunway_modeldeployment_info{{{IN_NAMESPACE},{OF_PROVIDER}}})",
                        "",
                    ),
                ),
                description="Each deployment with its provider, engine and model.",
            ),
        ),
    ),
    (
        "Routes and runtime configs",
        (
            Panel(
                title="Routes that are not ready",
                kind="stat",
                width=4,
                queries=(
                    (
                        "count(max by (namespace, name) (airunway_modeldeployment_condition"
                        f'{{type="GatewayReady",status!="True",{IN_NAMESPACE}}})) or vector(0)',
                        "",
                    ),
                ),
                description="Deployments whose condition GatewayReady is not True.",
            ),
            Panel(
                title="Routes",
                width=10,
                queries=(
                    (
                        "count by (status) (max by (namespace, name, status) (airunway_modeldeployment_condition"
                        f'{{type="GatewayReady",{IN_NAMESPACE}}}))',
                        "GatewayReady {{status}}",
                    ),
                ),
                description="Deployments that have a route or ask for one, by their condition GatewayReady.",
            ),
            Panel(
                title="Runtime configs",
                width=10,
                queries=(
                    (
                        "count by (status) (max by (namespace, name, status) (airunway_modeldeployment_condition"
                        f'{{type="RuntimeConfigReady",{IN_NAMESPACE}}}))',
                        "RuntimeConfigReady {{status}}",
                    ),
                ),
                description="Deployments by their condition RuntimeConfigReady: False means that a config is missing.",
            ),
        ),
    ),
    (
        "Model cache",
        (
            Panel(
                title="Model artifacts",
                width=6,
                queries=(
                    (
                        f"sum by (phase) (max by (namespace, phase) (airunway_modelartifacts{{{IN_NAMESPACE}}}))",
                        "{{phase}}",
                    ),
                ),
                description="ModelArtifacts by phase.",
            ),
            Panel(
                title="Bytes of weights and of claims",
                unit="bytes",
                width=6,
                queries=(
                    (
                        "sum by (state) (max by (namespace, name, state) "
                        f"(airunway_modelartifact_bytes{{{IN_NAMESPACE}}}))",
                        "{{state}}",
                    ),
                ),
                description="needed: all weights; allocated: their claims; downloading: what running downloads have.",
            ),
            Panel(
                title="Downloads",
                width=6,
                queries=(("max by (state) (airunway_model_downloads)", "{{state}}"),),
                description="Downloads that run, and those that wait because of --max-downloads.",
            ),
            Panel(
                title="Ended tries",
                width=6,
                queries=(
                    (
                        "sum by (result) (increase(airunway_model_download_attempts_total[$__rate_interval]))",
                        "{{result}}",
                    ),
                ),
                description="Tries to measure or fetch weights, by result.",
            ),
            Panel(
                title="Duration of downloads",
                unit="s",
                width=12,
                queries=tuple(
                    (
                        f"histogram_quantile({quantile}, sum by (le) "
                        "(rate(airunway_model_download_duration_seconds_bucket[$__rate_interval])))",
                        f"p{round(quantile * 100)}",
                    )
                    for quantile in (0.5, 0.95)
                ),
                description="Of the tries that completed an artifact.",
            ),
            Panel(
                title="Each artifact with its phase and users",
                kind="table",
                width=12,
                queries=(
                    (f"max by (namespace, name, phase) (airunway_modelartifact_phase{{{IN_NAMESPACE}}})", ""),
                    (f"max by (namespace, name) (airunway_modelartifact_users{{{IN_NAMESPACE}}})", ""),
                ),
                description="Artifacts without users can be deleted to free disk.",
            ),
        ),
    ),
    (
        "Catalogue",
        (
            Panel(
                title="Templates",
                width=6,
                queries=(
                    (
                        f"sum by (phase) (max by (namespace, phase) (airunway_modeltemplates{{{IN_NAMESPACE}}}))",
                        "{{phase}}",
                    ),
                ),
                description="ModelTemplates by phase; ClusterModelTemplates have no namespace.",
            ),
            Panel(
                title="Discoveries",
                width=6,
                queries=(("max by (state) (airunway_discoveries)", "{{state}}"),),
                description="Jobs that ask images for their profile, and those that wait because of --max-discoveries.",
            ),
            Panel(
                title="Ended tries of discovery",
                width=6,
                queries=(
                    (
                        "sum by (result) (increase(airunway_discovery_attempts_total[$__rate_interval]))",
                        "{{result}}",
                    ),
                ),
                description="Tries to ask an image for its profile, by result.",
            ),
            Panel(
                title="Model sources",
                width=6,
                queries=(("max by (phase) (airunway_modelsources)", "{{phase}}"),),
                description="ModelSources by phase.",
            ),
            Panel(
                title="Ended scans",
                width=12,
                queries=(("sum by (result) (increase(airunway_source_scans_total[$__rate_interval]))", "{{result}}"),),
                description="Scans of registries by result; partial: some filters of a source failed.",
            ),
            Panel(
                title="Duration of scans",
                unit="s",
                width=12,
                queries=tuple(
                    (
                        f"histogram_quantile({quantile}, sum by (le) "
                        "(rate(airunway_source_scan_duration_seconds_bucket[$__rate_interval])))",
                        f"p{round(quantile * 100)}",
                    )
                    for quantile in (0.5, 0.95)
                ),
                description="A scan ends after ten minutes at the latest.",
            ),
        ),
    ),
    (
        "Providers",
        (
            Panel(
                title="Providers that are ready",
                kind="stat",
                queries=((f"max by (provider) (airunway_provider_ready{{{OF_PROVIDER}}})", "{{provider}}"),),
                description="1: the provider takes deployments.",
            ),
            Panel(
                title="Age of the last heartbeat",
                unit="s",
                queries=(
                    (f"min by (provider) (airunway_provider_heartbeat_age_seconds{{{OF_PROVIDER}}})", "{{provider}}"),
                ),
                description="A provider beats once a minute; after three it gets no new deployments.",
            ),
            Panel(
                title="Deployments given to a provider",
                queries=(
                    (
                        "sum by (provider, reason) (increase(airunway_provider_selection_total"
                        f"{{{OF_PROVIDER}}}[$__rate_interval]))",
                        "{{provider}} {{reason}}",
                    ),
                ),
                description="Providers given to deployments: named by the spec (manual) or chosen (auto).",
            ),
        ),
    ),
    (
        "Webhook",
        (
            Panel(
                title="Admission reviews",
                unit="reqps",
                width=8,
                queries=(
                    (
                        "sum by (verdict) (rate(airunway_webhook_requests_total[$__rate_interval]))",
                        "{{verdict}}",
                    ),
                ),
                description="Reviews of ModelDeployments by verdict.",
            ),
            Panel(
                title="Duration of an admission review",
                unit="s",
                width=8,
                queries=tuple(
                    (
                        f"histogram_quantile({quantile}, sum by (le) "
                        "(rate(airunway_webhook_duration_seconds_bucket[$__rate_interval])))",
                        f"p{round(quantile * 100)}",
                    )
                    for quantile in (0.5, 0.99)
                ),
                description="As the webhook measures it.",
            ),
            Panel(
                title="Turned away by the webhook",
                unit="ops",
                width=8,
                queries=(
                    (
                        "sum by (cause) (rate(airunway_webhook_turned_away_total[$__rate_interval]))",
                        "{{cause}}",
                    ),
                ),
                description="Connections and requests that were closed or refused without a review. API servers cause "
                "almost none: check which other clients can reach the port.",
            ),
        ),
    ),
)
