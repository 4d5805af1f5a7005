{{/*
Every template here takes one map, the component:
  root    the chart's own context
  name    what leases, logs and field managers call the process
  args    the arguments of its command
  rights  {cluster, watched, own}: RBAC rules by where they are needed
  guard   the text of its ValidatingAdmissionPolicies
  webhook whether it answers reviews; volumes, mounts, egress: further ones
*/}}
{{- define "airunway-common.name" -}}
{{- .root.Values.fullnameOverride | default .name -}}
{{- end }}

{{/* Of what has no namespace: two installations must not fight over it. */}}
{{- define "airunway-common.clusterName" -}}
{{- printf "%s-%s" (include "airunway-common.name" .) .root.Release.Namespace -}}
{{- end }}

{{- define "airunway-common.account" -}}
{{- .root.Values.serviceAccount.name | default (include "airunway-common.name" .) -}}
{{- end }}

{{/* What selectors say: never a version. */}}
{{- define "airunway-common.selector" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end }}

{{- define "airunway-common.labels" -}}
{{- $own := include "airunway-common.selector" . | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/version" .root.Chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/part-of" "airunway" -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" .root.Release.Service -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .root.Chart.Name (.root.Chart.Version | replace "+" "_")) -}}
{{- toYaml (merge $own (.extraLabels | default dict) .root.Values.commonLabels) -}}
{{- end }}

{{/* Of pods: nothing that changes from release to release. */}}
{{- define "airunway-common.podLabels" -}}
{{- $own := include "airunway-common.selector" . | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/part-of" "airunway" -}}
{{- toYaml (merge $own .root.Values.podLabels .root.Values.commonLabels) -}}
{{- end }}

{{/* metadata of an object in the release's namespace, or in `namespace`; of one without a namespace. */}}
{{- define "airunway-common.metadata" -}}
name: {{ .objectName | default (include "airunway-common.name" .) }}
namespace: {{ .namespace | default .root.Release.Namespace }}
{{ include "airunway-common.metadata.rest" . }}
{{- end }}

{{- define "airunway-common.metadata.cluster" -}}
name: {{ .objectName | default (include "airunway-common.clusterName" .) }}
{{ include "airunway-common.metadata.rest" . }}
{{- end }}

{{- define "airunway-common.metadata.rest" -}}
labels:
  {{- include "airunway-common.labels" . | nindent 2 }}
{{- with merge (dict) (.extraAnnotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* A chart of a release knows the digest of its image; with a tag of the user's it does not count. */}}
{{- define "airunway-common.image" -}}
{{- include "airunway-common.imageOf" (dict "root" .root "image" .root.Values.image "annotation" "airunway.ai/image-digest") -}}
{{- end }}

{{/* An image of a release: `annotation` is that of the chart with its digest. */}}
{{- define "airunway-common.imageOf" -}}
{{- $image := .image -}}
{{- $registry := (.root.Values.global | default dict).imageRegistry | default $image.registry -}}
{{- $path := $image.repository -}}
{{- with $registry }}
{{- $path = printf "%s/%s" . $path -}}
{{- end }}
{{- if $image.digest -}}
{{ $path }}@{{ $image.digest }}
{{- else if $image.tag -}}
{{ $path }}:{{ $image.tag }}
{{- else -}}
{{ $path }}:{{ .root.Chart.AppVersion }}{{ with index .root.Chart.Annotations .annotation }}@{{ . }}{{ end }}
{{- end -}}
{{- end }}

{{/* The options that core and providers have alike. */}}
{{- define "airunway-common.args" -}}
{{- $v := .root.Values -}}
- --leader-elect
- --health-probe-bind-address=:{{ $v.ports.health }}
{{- if $v.metrics.enabled }}
- --metrics-bind-address=:{{ $v.ports.metrics }}
{{- end }}
- --log-level={{ $v.log.level }}
- --log-format={{ $v.log.format }}
{{- with $v.watchNamespaces }}
- --watch-namespaces={{ join "," . }}
{{- end }}
{{- end }}
