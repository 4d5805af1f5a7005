"""Prints what ``airunway explain`` says of a deployment's model template, runtime config, route and model cache."""

from __future__ import annotations

from collections.abc import Iterator

from airunway.resource import Resource
from airunway.tools.expanded import reference_text


def template_lines(explained: Resource) -> Iterator[str]:
    """The explanation for people; nothing for a deployment without a template."""
    template = explained.get("template")
    if template is None:
        return
    ref = template.get("ref")
    if not isinstance(ref, dict):
        yield f"Template:  none ({template['asked']} was asked for)"
    else:
        before = "" if template["found"] else "; before: "
        used, asked = reference_text(ref), f"({template['asked']} was asked for)"
        yield f"Template:  none {asked}{before}{used}" if before else f"Template:  {used} {asked}"
        yield f"           hash {template.get('hash')}"
        for entry in template["fields"]:
            value = f": {entry['value']}" if entry["value"] else ""
            by = f"; overridden by the deployment's {entry['overriddenBy']}" if "overriddenBy" in entry else ""
            by += f"; merged with the deployment's {entry['mergedWith']}" if "mergedWith" in entry else ""
            yield f"  {entry['field']}{value} (from {entry['from']}{by})"
    if template.get("message"):
        reason = f"{template['reason']}: " if template.get("reason") else ""
        yield f"  {reason}{template['message']}"
    yield from _ready(template.get("ready"))


_REQUESTS = {"Off": "off", "WherePossible": "where possible", "Required": "required"}


def config_lines(explained: Resource) -> Iterator[str]:
    """The explanation for people."""
    config, routing = explained["runtimeConfig"], explained["routing"]
    if not config["found"]:
        yield f"Config:    none ({config.get('message') or 'no default config: built-in defaults are used'})"
    else:
        reference = config.get("namespaceRef") or config["clusterRef"]
        yield f"Config:    {reference_text(reference)} (scope {config['scope']})"
        yield f"           hash {config['hash']}"
        for entry in config["fields"]:
            value = f": {entry['value']}" if entry["value"] else ""
            whose = entry.get("overriddenIn") or "the deployment"
            by = f"; overridden by {whose}'s {entry['overriddenBy']}" if "overriddenBy" in entry else ""
            yield f"  {entry['field']}{value} (from {entry['from']}{by})"
        for problem in config["problems"]:
            yield f"  problem: {problem['field']}: {problem['message']}"
        if config.get("podSettingsCurrent") is False:
            used = config["podSettingsOf"][:12] or "no config"
            yield f"  Pods have the settings of {used}; {config['podSettingsWait']}"
    yield f"Routing:   {_REQUESTS[routing['request']]} ({routing['because']})"
    if "gatewayName" in routing:
        by = routing.get("gatewayNamedBy") or "the controller's choice"
        yield f"  Gateway: {routing.get('gatewayNamespace', '')}/{routing['gatewayName']} (by {by})"
    elif "gatewayNamedBy" in routing:
        yield f"  Gateway: named by {routing['gatewayNamedBy']}"
    if "share" in routing:
        yield f"  Share:   {routing['share']}"
    if "path" in routing or "pathTemplate" in routing:
        path = routing.get("path") or routing.get("pathProblem") or "known once the deployment is created"
        yield f"  Path:    {path} (template {routing['pathTemplate']}, from {routing['pathTemplateFrom']})"
    allowed = [
        f"{what} {', '.join(routing[field])}"
        for field, what in (("pathPrefixes", "paths below"), ("modelNames", "model names"))
        if field in routing
    ]
    if allowed:
        yield f"  Allowed: {'; '.join(allowed)} (by ClusterRuntimeConfigs; the policy may allow less)"
    if "backend" in routing:
        yield f"  Backend: {routing['backend']}"
    if "url" in routing and routing.get("ready", {}).get("status") == "True":
        yield f"  URL:     {routing['url']}"
    yield from _ready(routing.get("ready"))


def cache_lines(explained: Resource) -> Iterator[str]:
    """The explanation for people; nothing for a deployment without cache and volumes."""
    if (cache := explained.get("modelCache")) is not None:
        yield from _cache_lines(cache)
    if (volumes := explained.get("volumes")) is not None:
        yield "Volumes:"
        for claim in volumes["claims"]:
            made = f"made with {claim['size']}" if "size" in claim else "an existing one"
            yield f"  {claim['name']}: claim {claim['claimName']} ({made})"
        yield from _ready(volumes["ready"])


def _cache_lines(cache: Resource) -> Iterator[str]:
    source = cache.get("source") or {}
    revision = f" at {source['revision']}" if source.get("revision") else ""
    origin = f" ({source['uri']}{revision})" if source.get("uri") else ""
    yield f"Cache:     {cache['mode']}, ModelArtifact {cache['artifactName']}{origin}"
    artifact = cache.get("artifact")
    if artifact is None:
        yield "  It does not exist" + ("." if cache.get("source") is None else "; it is made for this deployment.")
    else:
        yield f"  State:   {artifact.get('phase', 'none')} ({artifact.get('reason', 'not reconciled yet')})"
        if artifact.get("message"):
            yield f"           {artifact['message']}"
        yield from _progress(artifact)
        if claim := artifact.get("claimName"):
            yield f"  Claim:   {claim} ({artifact.get('allocatedSize', 'size not known yet')})"
    yield f"  Mount:   {cache['mountPath']}, read-only; the weights are at {cache['path']}"
    shared = cache.get("sharedWith")
    if shared is not None:
        yield f"  Shared:  with {', '.join(shared)}" if shared else "  Shared:  with no other deployment"
    for other in cache.get("notSharedWith") or ():
        yield f"  Not shared with ModelArtifact {other['artifactName']} of the same model:"
        for because in other["because"]:
            yield f"    {because}"
    yield from _ready(cache["ready"])


def _progress(artifact: Resource) -> Iterator[str]:
    progress = artifact.get("progress") or {}
    if artifact.get("phase") != "Ready" and "percentage" in progress:
        gigabytes = f"{progress['downloadedBytes'] / 1e9:.1f} of {progress['totalBytes'] / 1e9:.1f} GB"
        speed = f", {progress['bytesPerSecond'] / 1e6:.0f} MB/s" if "bytesPerSecond" in progress else ""
        end = f", done about {progress['estimatedCompletion']}" if "estimatedCompletion" in progress else ""
        yield f"  Done:    {progress['percentage']} % ({gigabytes}{speed}{end})"
    download = artifact.get("download") or {}
    if "nextAttemptTime" in download:
        yield f"  Next:    try {download.get('attempts', 0) + 1} at {download['nextAttemptTime']}"


def _ready(ready: Resource | None) -> Iterator[str]:
    if ready is not None:
        yield f"  Ready:   {ready['status']} ({ready['reason']}) {ready['message'] or ''}".rstrip()
