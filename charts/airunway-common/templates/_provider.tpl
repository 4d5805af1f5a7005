{{/* One part of a provider's chart: what only this provider has is in files/. */}}
{{- define "airunway-common.provider" -}}
{{- $v := .root.Values -}}
{{- $facts := .root.Files.Get "files/provider.yaml" | fromYaml -}}
{{- $args := list "provider" "run" $facts.provider (printf "--unknown-schema=%s" $v.unknownSchema) -}}
{{- range $name, $value := $v.settings }}
{{- $args = append $args (printf "--set=%s=%s" $name (toRawJson $value)) -}}
{{- end }}
{{- $component := dict "root" .root "name" $facts.component "args" $args "rights" $facts.rights "guard" (.root.Files.Get "files/guard.yaml") -}}
{{- include (printf "airunway-common.%s" .part) $component -}}
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
{{- if eq (int $v.replicas) 0 }}
WARNING: replicas is 0: nothing works on deployments.
{{- else if eq (int $v.replicas) 1 }}
WARNING: one replica: while its node is drained or lost, nothing works on deployments.
{{- end }}
{{- if not $v.guard.enabled }}
WARNING: guard.enabled is false: only RBAC limits this account, which cannot tell whose object or which field it is.
{{- end }}
{{- if not $v.rbac.create }}
WARNING: rbac.create is false: grant the account what docs/reference lists.
{{- end }}
{{- if $v.hostNetwork }}
WARNING: hostNetwork: namespaces with the restricted Pod Security Standard refuse these pods.
{{- end }}
{{- end }}
