{{- define "airunway-common.service" -}}
{{- $v := .root.Values -}}
{{- if $v.metrics.enabled }}
---
apiVersion: v1
kind: Service
metadata:
  {{- include "airunway-common.metadata" (merge (dict "objectName" (printf "%s-metrics" (include "airunway-common.name" .)) "extraLabels" (dict "airunway.ai/service" "metrics")) .) | nindent 2 }}
spec:
  clusterIP: None
  selector:
    {{- include "airunway-common.selector" . | nindent 4 }}
  ports:
    - {name: metrics, port: {{ $v.ports.metrics }}, targetPort: metrics}
{{- end }}
{{- end }}

{{- define "airunway-common.monitoring" -}}
{{- if not (.root.Capabilities.APIVersions.Has "monitoring.coreos.com/v1") }}
{{- fail (printf "metrics.%s.enabled needs the Prometheus operator, whose API monitoring.coreos.com/v1 this cluster does not have: install it first, or switch metrics.%s off (helm template: --api-versions monitoring.coreos.com/v1)" .value .value) }}
{{- end }}
{{- if not .root.Values.metrics.enabled }}
{{- fail (printf "metrics.%s.enabled needs metrics.enabled: nothing is served to be scraped, set it to true as well" .value) }}
{{- end }}
{{- end }}

{{- define "airunway-common.servicemonitor" -}}
{{- $metrics := .root.Values.metrics -}}
{{- if $metrics.serviceMonitor.enabled -}}
{{- include "airunway-common.monitoring" (dict "root" .root "value" "serviceMonitor") -}}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  {{- include "airunway-common.metadata" (merge (dict "extraLabels" $metrics.serviceMonitor.labels) .) | nindent 2 }}
spec:
  selector:
    matchLabels:
      {{- include "airunway-common.selector" . | nindent 6 }}
      airunway.ai/service: metrics
  endpoints:
    - port: metrics
      honorLabels: true  # the namespace of a deployment is not that of the pod that tells of it
      interval: {{ $metrics.serviceMonitor.interval }}
{{- end }}
{{- end }}

{{- define "airunway-common.networkpolicy" -}}
{{- $v := .root.Values -}}
{{- if $v.networkPolicy.enabled -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "airunway-common.metadata" . | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "airunway-common.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    - ports: [{protocol: TCP, port: health}]
    {{- if $v.metrics.enabled }}
    - ports: [{protocol: TCP, port: metrics}]
      {{- with $v.networkPolicy.metricsFrom }}
      from:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- end }}
    {{- if .webhook }}
    # API servers have no address that is the same in two clusters: webhook.clientCAConfigMap limits who may ask.
    - ports: [{protocol: TCP, port: webhook}]
    {{- end }}
  egress:
    - ports: [{protocol: UDP, port: 53}, {protocol: TCP, port: 53}]
    - ports:
        {{- range $v.networkPolicy.apiServerPorts }}
        - {protocol: TCP, port: {{ . }}}
        {{- end }}
    {{- with .egress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with $v.networkPolicy.extraEgress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
{{- end }}
