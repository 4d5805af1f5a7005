{{- define "airunway-common.deployment" -}}
{{- $v := .root.Values -}}
{{- $global := .root.Values.global | default dict -}}
{{- $ports := list (int $v.ports.health) -}}
{{- if $v.metrics.enabled }}{{- $ports = append $ports (int $v.ports.metrics) -}}{{- end -}}
{{- if .webhook }}{{- $ports = append $ports (int $v.ports.webhook) -}}{{- end -}}
{{- if ne (len $ports) (len (uniq $ports)) -}}
{{- fail (printf "ports: two of health, metrics and webhook are the same (%s): the process needs a port for each" (join ", " $ports)) -}}
{{- end -}}
{{- include "airunway-common.alone" . -}}
{{- /* `airunway doctor` compares the guards that it says are there with those that are. */}}
{{- $guarded := ternary (dict "airunway.ai/guarded" (get $v.guard "coreNamespace" | default .root.Release.Namespace)) dict $v.guard.enabled }}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "airunway-common.metadata" (merge (dict "extraAnnotations" $guarded) .) | nindent 2 }}
spec:
  replicas: {{ $v.replicas }}
  revisionHistoryLimit: 3
  # A new version that does not get ready takes nothing away from the one that works.
  strategy:
    type: RollingUpdate
    rollingUpdate:
      maxSurge: {{ ternary 0 1 $v.hostNetwork }}
      maxUnavailable: {{ ternary 1 0 $v.hostNetwork }}
  selector:
    matchLabels:
      {{- include "airunway-common.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "airunway-common.podLabels" . | nindent 8 }}
      annotations:
        {{- toYaml (merge (dict) $v.podAnnotations $v.commonAnnotations (dict "kubectl.kubernetes.io/default-container" "airunway")) | nindent 8 }}
    spec:
      serviceAccountName: {{ include "airunway-common.account" . }}
      automountServiceAccountToken: true
      enableServiceLinks: false
      {{- with concat ($global.imagePullSecrets | default list) $v.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if $v.hostNetwork }}
      hostNetwork: true
      dnsPolicy: ClusterFirstWithHostNet
      {{- end }}
      {{- if kindIs "bool" $v.hostUsers }}
      hostUsers: {{ $v.hostUsers }}
      {{- end }}
      {{- with $v.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      terminationGracePeriodSeconds: {{ $v.terminationGracePeriodSeconds }}
      securityContext:
        {{- toYaml $v.podSecurityContext | nindent 8 }}
      containers:
        - name: airunway
          image: {{ include "airunway-common.image" . }}
          imagePullPolicy: {{ $v.image.pullPolicy }}
          # Its last words, where it crashes, stand in the pod's status: `airunway doctor` and kubectl describe show them.
          terminationMessagePolicy: FallbackToLogsOnError
          args:
            {{- toYaml (concat .args (include "airunway-common.args" . | fromYamlArray) $v.extraArgs) | nindent 12 }}
          env:
            - name: POD_NAME
              valueFrom: {fieldRef: {fieldPath: metadata.name}}
            - name: POD_NAMESPACE
              valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
            {{- range $name, $value := $v.extraEnv }}
            - name: {{ $name }}
              {{- if kindIs "string" $value }}
              value: {{ $value | quote }}
              {{- else }}
              {{- toYaml $value | nindent 14 }}
              {{- end }}
            {{- end }}
          ports:
            - {name: health, containerPort: {{ $v.ports.health }}}
            {{- if $v.metrics.enabled }}
            - {name: metrics, containerPort: {{ $v.ports.metrics }}}
            {{- end }}
            {{- if .webhook }}
            - {name: webhook, containerPort: {{ $v.ports.webhook }}}
            {{- end }}
          startupProbe:
            httpGet: {path: /livez, port: health}
            periodSeconds: 1
            failureThreshold: 60
          livenessProbe:
            httpGet: {path: /livez, port: health}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 6
          readinessProbe:
            httpGet: {path: /readyz, port: health}
            periodSeconds: 2
            timeoutSeconds: 5
            failureThreshold: 3
          {{- if .webhook }}
          # Reviews still come while API servers learn that this pod goes.
          lifecycle: {preStop: {sleep: {seconds: 5}}}
          {{- end }}
          resources:
            {{- toYaml $v.resources | nindent 12 }}
          securityContext:
            {{- toYaml $v.securityContext | nindent 12 }}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            {{- with concat (.mounts | default list) $v.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        - {name: tmp, emptyDir: {sizeLimit: 64Mi}}
        {{- with concat (.volumes | default list) $v.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $v.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $v.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $v.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with include "airunway-common.spread" . | fromYamlArray }}
      topologySpreadConstraints:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end }}

{{- define "airunway-common.spread" -}}
{{- $selector := dict "labelSelector" (dict "matchLabels" (include "airunway-common.selector" . | fromYaml)) -}}
{{- $given := .root.Values.topologySpreadConstraints -}}
{{- if kindIs "invalid" $given }}
{{- $given = list -}}
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
{{- $given = append $given (dict "maxSkew" 1 "topologyKey" . "whenUnsatisfiable" "ScheduleAnyway") -}}
{{- end }}
{{- end }}
{{- $constraints := list -}}
{{- range $given }}
{{- $constraints = append $constraints (merge (dict) . $selector) -}}
{{- end }}
{{- toYaml $constraints -}}
{{- end }}

{{- define "airunway-common.serviceaccount" -}}
{{- if .root.Values.serviceAccount.create -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "airunway-common.metadata" (merge (dict "objectName" (include "airunway-common.account" .) "extraAnnotations" .root.Values.serviceAccount.annotations) .) | nindent 2 }}
automountServiceAccountToken: false
{{- end }}
{{- end }}

{{- define "airunway-common.poddisruptionbudget" -}}
{{- $v := .root.Values -}}
{{- if and $v.podDisruptionBudget.enabled (gt (int $v.replicas) 1) -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "airunway-common.metadata" . | nindent 2 }}
spec:
  maxUnavailable: {{ $v.podDisruptionBudget.maxUnavailable }}
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "airunway-common.selector" . | nindent 6 }}
{{- end }}
{{- end }}

{{- define "airunway-common.extra" -}}
{{- range .root.Values.extraObjects }}
---
{{ toYaml . }}
{{- end }}
{{- end }}
