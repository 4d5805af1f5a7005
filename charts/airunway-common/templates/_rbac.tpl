{{/* As `airunway.process.rights.roles` has it: what is watched is a Role in each watched namespace, or part of the ClusterRole. */}}
{{- define "airunway-common.rbac" -}}
{{- if .root.Values.rbac.create }}
{{- $watched := .root.Values.watchNamespaces -}}
{{- $everywhere := .rights.cluster -}}
{{- if not $watched }}
{{- $everywhere = concat $everywhere .rights.watched -}}
{{- end }}
{{- include "airunway-common.role" (merge (dict "kind" "ClusterRole" "rules" $everywhere) .) }}
{{- range $watched }}
{{- /* Only a cluster can be asked: lookup finds nothing while a chart is rendered elsewhere. */}}
{{- if and (lookup "v1" "Namespace" "" "kube-system") (not (lookup "v1" "Namespace" "" .)) }}
{{- fail (printf "watchNamespaces: there is no namespace %s: create it (kubectl create namespace %s), or leave it out" . .) }}
{{- end }}
{{- include "airunway-common.role" (merge (dict "kind" "Role" "rules" $.rights.watched "namespace" . "objectName" (include "airunway-common.clusterName" $)) $) }}
{{- end }}
{{- include "airunway-common.role" (merge (dict "kind" "Role" "rules" .rights.own) .) }}
{{- end }}
{{- end }}

{{- define "airunway-common.role" -}}
{{- $metadata := ternary "airunway-common.metadata.cluster" "airunway-common.metadata" (eq .kind "ClusterRole") -}}
{{- $name := (include $metadata . | fromYaml).name -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}
metadata:
  {{- include $metadata . | nindent 2 }}
rules:
  {{- toYaml .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  {{- include $metadata . | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "airunway-common.account" . }}
    namespace: {{ .root.Release.Namespace }}
{{ end }}

{{/* The text comes from the code with marks for what only the release knows. */}}
{{- define "airunway-common.guard" -}}
{{- if .root.Values.guard.enabled }}
{{- $account := printf "system:serviceaccount:%s:%s" .root.Release.Namespace (include "airunway-common.account" .) -}}
{{- $core := .root.Values.guard.coreNamespace | default .root.Release.Namespace -}}
{{- $text := .guard | replace "@account@" $account | replace "@namespace@" .root.Release.Namespace | replace "@name@" (include "airunway-common.clusterName" .) | replace "@core@" $core | replace "@namespaces@" (join "," .root.Values.watchNamespaces) -}}
{{- range $text | splitList "\n---\n" }}
{{- $object := fromYaml . }}
---
apiVersion: {{ $object.apiVersion }}
kind: {{ $object.kind }}
metadata:
  {{- include "airunway-common.metadata.cluster" (merge (dict "objectName" $object.metadata.name) $) | nindent 2 }}
spec:
  {{- toYaml $object.spec | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
