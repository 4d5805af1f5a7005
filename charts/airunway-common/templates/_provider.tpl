{{/* One part of a provider's chart: what only this provider has is in files/. */}}
{{- define "airunway-common.provider" -}}
{{- $v := .root.Values -}}
{{- $facts := .root.Files.Get "files/provider.yaml" | fromYaml -}}
{{- $args := list "provider" "run" $facts.provider (printf "--unknown-schema=%s" $v.unknownSchema) -}}
{{- range $name, $value := $v.settings }}
{{- $args = append $args (printf "--set=%s=%s" $name (toRawJson $value)) -}}
{{- end }}
{{- $component := dict "root" .root "name" $facts.component "args" $args "rights" $facts.rights "tenant" $facts.tenant "guard" (.root.Files.Get "files/guard.yaml") -}}
{{- include (printf "airunway-common.%s" .part) $component -}}
{{- end }}

{{/* What a tenant needs beside the right to write ModelDeployments: the webhook asks whether he could create the
provider's kind himself. Bound per namespace. */}}
{{- define "airunway-common.tenantrole" -}}
{{- $role := .root.Values.tenantRole -}}
{{- if and $role.create .tenant }}
{{- $labels := dict -}}
{{- if $role.aggregateToEdit }}
{{- range list "edit" "admin" }}
{{- $_ := set $labels (printf "rbac.authorization.k8s.io/aggregate-to-%s" .) "true" }}
{{- end }}
{{- end }}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  {{- include "airunway-common.metadata.cluster" (merge (dict "objectName" (printf "%s-tenant" (include "airunway-common.clusterName" .)) "extraLabels" $labels) .) | nindent 2 }}
rules:
  {{- toYaml (list .tenant) | nindent 2 }}
{{- end }}
{{- end }}

{{- define "airunway-common.provider.notes" -}}
{{- $facts := .root.Files.Get "files/provider.yaml" | fromYaml -}}
{{- $name := .root.Values.fullnameOverride | default $facts.component -}}
Provider {{ $facts.provider }} {{ .root.Chart.AppVersion }} runs in {{ .root.Release.Namespace }}{{ with .root.Values.watchNamespaces }}, for {{ join ", " . }}{{ end }}. To check:

  kubectl rollout status deployment/{{ $name }} -n {{ .root.Release.Namespace }}
  kubectl get inferenceproviderconfigs {{ $facts.provider }}
  kubectl logs deployment/{{ $name }} -n {{ .root.Release.Namespace }}
{{ include "airunway-common.warnings" . }}
{{- end }}

{{- define "airunway-common.warnings" -}}
{{- $v := .root.Values -}}
{{- if eq (($v.global | default dict).imageRegistry | default $v.image.registry) "registry.example" }}
WARNING: this chart is a checkout's and knows no registry: registry.example has no image. Say where the images are: --set global.imageRegistry=REGISTRY
{{- end }}
{{- if eq (int $v.replicas) 0 }}
WARNING: replicas is 0: nothing works on deployments.
{{- else if eq (int $v.replicas) 1 }}
WARNING: one replica: while its node is drained or lost, nothing works on deployments.
{{- end }}
{{- if not $v.guard.enabled }}
WARNING: guard.enabled is false: only RBAC limits this account, which cannot tell whose object or which field it is.
{{- end }}
{{- if and $v.guard.enabled (has .root.Release.Namespace $v.watchNamespaces) }}
WARNING: {{ .root.Release.Namespace }} is watched, but it is the operator's own: the guards refuse what providers write there. Deploy models in other namespaces.
{{- end }}
{{- with $v.guard.statusWriters }}
WARNING: guard.statusWriters: {{ join ", " . }} may choose any provider for a deployment, past validation and policy.
{{- end }}
{{- if or (eq $v.serviceAccount.name "default") (and $v.serviceAccount.name (not $v.serviceAccount.create)) }}
WARNING: the account {{ $v.serviceAccount.name }} was not made for this process: whatever else runs as it has the same rights, and of two providers with one account each is refused by the other's guards.
{{- end }}
{{- range $v.extraObjects }}
{{- if contains "Role" .kind }}
WARNING: extraObjects: {{ .kind }} {{ .metadata.name }} may grant what no guard of this chart knows of.
{{- end }}
{{- end }}
{{- if not $v.rbac.create }}
WARNING: rbac.create is false: grant the account what docs/reference lists.
{{- end }}
{{- if and $v.metrics.enabled (or (not $v.networkPolicy.enabled) (not $v.networkPolicy.metricsFrom)) }}
WARNING: every pod that reaches the metrics reads names, namespaces and models of all tenants: name the readers, networkPolicy.enabled and networkPolicy.metricsFrom.
{{- end }}
{{- if $v.hostNetwork }}
WARNING: hostNetwork: namespaces with the restricted Pod Security Standard refuse these pods.
{{- end }}
{{- end }}
