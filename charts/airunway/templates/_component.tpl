{{/* One part of the core's chart. */}}
{{- define "airunway.part" -}}
{{- $v := .root.Values -}}
{{- $webhook := $v.webhook.enabled -}}
{{- $policy := or $v.policy $v.policyConfigMap -}}
{{- $name := $v.fullnameOverride | default "airunway-controller" -}}
{{- $args := list "controller" "--guard-parameters" -}}
{{- $volumes := list -}}
{{- $mounts := list -}}
{{- if not $v.providerSelector }}
{{- $args = append $args "--no-enable-provider-selector" -}}
{{- end }}
{{- if and $v.policy $v.policyConfigMap }}
{{- fail "policy and policyConfigMap are both set: say what namespaces may use in one of them" }}
{{- end }}
{{- if $policy }}
{{- $args = append $args "--policy=/etc/airunway/policy/policy.yaml" -}}
{{- $volumes = append $volumes (dict "name" "policy" "configMap" (dict "name" ($v.policyConfigMap | default (printf "%s-policy" $name)))) -}}
{{- $mounts = append $mounts (dict "name" "policy" "mountPath" "/etc/airunway/policy" "readOnly" true) -}}
{{- end }}
{{- if eq $v.gateway.mode "off" }}
{{- $args = append $args "--gateway=off" -}}
{{- end }}
{{- with $v.gateway.name }}
{{- $args = append $args (printf "--gateway-name=%s" .) -}}
{{- end }}
{{- with $v.gateway.namespaces }}
{{- $args = append $args (printf "--gateway-namespaces=%s" (join "," .)) -}}
{{- end }}
{{- with $v.endpointPicker.image }}
{{- $args = append $args (printf "--epp-image=%s" .) -}}
{{- end }}
{{- with $v.endpointPicker.version }}
{{- $args = append $args (printf "--epp-version=%s" .) -}}
{{- end }}
{{- if $v.modelCache.enabled }}
{{- $args = append $args (printf "--downloader-image=%s" (include "airunway.downloader" .root)) -}}
{{- $args = append $args (printf "--max-downloads=%d" (int $v.modelCache.maxDownloads)) -}}
{{- else }}
{{- $args = append $args "--model-cache=off" -}}
{{- end }}
{{- if $webhook }}
{{- $args = append $args (printf "--webhook-bind-address=:%d" (int $v.ports.webhook)) -}}
{{- $args = append $args (ternary (printf "--webhook-url=%s" $v.webhook.url) (printf "--webhook-service=%s-webhook.%s" $name .root.Release.Namespace) (ne $v.webhook.url "")) -}}
{{- $args = append $args (printf "--webhook-configuration=%s-%s" $name .root.Release.Namespace) -}}
{{- if not $v.webhook.accessReview }}
{{- $args = append $args "--no-webhook-access-review" -}}
{{- end }}
{{- if not $v.webhook.accessReviewRoutes }}
{{- $args = append $args "--no-webhook-access-review-routes" -}}
{{- end }}
{{- if $v.webhook.accessReviewPods }}
{{- $args = append $args "--webhook-access-review-pods" -}}
{{- end }}
{{- with $v.webhook.clientCAConfigMap }}
{{- $args = append $args "--webhook-client-ca=/etc/airunway/client-ca/ca.crt" -}}
{{- $volumes = append $volumes (dict "name" "client-ca" "configMap" (dict "name" .)) -}}
{{- $mounts = append $mounts (dict "name" "client-ca" "mountPath" "/etc/airunway/client-ca" "readOnly" true) -}}
{{- end }}
{{- end }}
{{- $egress := list -}}
{{- if and (ne $v.gateway.mode "off") $v.networkPolicy.modelPorts }}
{{- $ports := list -}}
{{- range $v.networkPolicy.modelPorts }}
{{- $ports = append $ports (dict "protocol" "TCP" "port" (int .)) -}}
{{- end }}
{{- $egress = append $egress (dict "to" (list (dict "namespaceSelector" dict)) "ports" $ports) -}}
{{- end }}
{{- if $v.modelCache.enabled }}
{{- $downloads := dict "namespaceSelector" dict "podSelector" (dict "matchLabels" (dict "airunway.ai/part" "model-cache")) -}}
{{- $egress = append $egress (dict "to" (list $downloads) "ports" (list (dict "protocol" "TCP" "port" 8080))) -}}
{{- end }}
{{- $component := dict "root" .root "name" "airunway-controller" "args" $args "egress" $egress "volumes" $volumes "mounts" $mounts "webhook" $webhook "guard" (include "airunway.guard" .root) "rights" (include "airunway.rights" .root | fromYaml) -}}
{{- include (ternary .part (printf "airunway-common.%s" .part) (hasPrefix "airunway." .part)) $component -}}
{{- end }}

{{/* The image of the Jobs that fetch weights; without a registry of its own it is beside the core's. */}}
{{- define "airunway.downloader" -}}
{{- $image := .Values.modelCache.image -}}
{{- include "airunway-common.imageOf" (dict "root" . "image" (merge (dict "registry" ($image.registry | default .Values.image.registry)) $image) "annotation" "airunway.ai/downloader-digest") -}}
{{- end }}

{{/* The rights of what is switched on, out of those that the code lists. */}}
{{- define "airunway.rights" -}}
{{- $v := .Values -}}
{{- $name := printf "%s-%s" ($v.fullnameOverride | default "airunway-controller") .Release.Namespace -}}
{{- $all := .Files.Get "files/rights.yaml" | replace "@configuration@" $name | fromYaml -}}
{{- $chosen := list $all.core $all.leaderElection -}}
{{- if or $v.policy $v.policyConfigMap }}
{{- $policy := $all.policy -}}
{{- with $v.watchNamespaces }}
{{- $named := list -}}
{{- range $policy.cluster }}
{{- $named = append $named (set . "resourceNames" (sortAlpha $v.watchNamespaces)) -}}
{{- end }}
{{- $policy = set $policy "cluster" $named -}}
{{- end }}
{{- $chosen = append $chosen $policy -}}
{{- end }}
{{- if $v.webhook.enabled }}
{{- $chosen = append $chosen $all.webhook -}}
{{- if or $v.webhook.accessReview $v.webhook.accessReviewPods }}
{{- $chosen = append $chosen $all.accessReview -}}
{{- end }}
{{- end }}
{{- if ne $v.gateway.mode "off" }}
{{- $chosen = append $chosen $all.gateway -}}
{{- end }}
{{- if $v.modelCache.enabled }}
{{- $chosen = append $chosen $all.modelCache -}}
{{- end }}
{{- $sum := dict "cluster" list "watched" list "own" list -}}
{{- range $part := $chosen }}
{{- range $where := list "cluster" "watched" "own" }}
{{- $_ := set $sum $where (concat (get $sum $where) (get $part $where | default list)) -}}
{{- end }}
{{- end }}
{{- toYaml $sum -}}
{{- end }}

{{/* Who writes the status is limited in the watched namespaces: elsewhere there may be another installation. */}}
{{- define "airunway.guard" -}}
{{- $writers := list -}}
{{- range .Values.guard.statusWriters }}
{{- $writers = append $writers (printf "'%s'" (. | replace "\\" "\\\\" | replace "'" "\\'")) -}}
{{- end }}
{{- $documents := list -}}
{{- range .Files.Get "files/guard.yaml" | splitList "\n---\n" }}
{{- $object := fromYaml . -}}
{{- if hasSuffix "-status" $object.metadata.name }}
{{- if and $writers (eq $object.kind "ValidatingAdmissionPolicy") }}
{{- $others := dict "name" "writers" "expression" (printf "!(request.userInfo.username in [%s])" (join ", " $writers)) -}}
{{- $_ := set $object.spec "matchConditions" (append $object.spec.matchConditions $others) -}}
{{- end }}
{{- if and $.Values.watchNamespaces (eq $object.kind "ValidatingAdmissionPolicyBinding") }}
{{- $selector := dict "matchExpressions" (list (dict "key" "kubernetes.io/metadata.name" "operator" "In" "values" (sortAlpha $.Values.watchNamespaces))) -}}
{{- $_ := set $object.spec "matchResources" (dict "namespaceSelector" $selector) -}}
{{- end }}
{{- end }}
{{- $off := and (eq $.Values.gateway.mode "off") (hasSuffix "-gateway" $object.metadata.name) -}}
{{- if not $.Values.modelCache.enabled }}
{{- $off = or $off (hasSuffix "-model-cache" $object.metadata.name) (hasSuffix "-model-artifacts" $object.metadata.name) -}}
{{- end }}
{{- if not $off }}
{{- $documents = append $documents (toYaml $object) -}}
{{- end }}
{{- end }}
{{- $pickers := include "airunway.repositories" (append .Values.endpointPicker.images .Values.endpointPicker.image) -}}
{{- $downloaders := include "airunway.repositories" (append .Values.modelCache.images (include "airunway.downloader" .)) -}}
{{- $annotations := join "," .Values.gateway.annotations | replace "\\" "" | replace "'" "" -}}
{{- join "\n---\n" $documents | replace "@pickers@" $pickers | replace "@downloaders@" $downloaders | replace "@annotations@" $annotations | replace "@where@" .Values.modelCache.namespaces -}}
{{- end }}

{{/* Images without tags and digests, with commas between them. */}}
{{- define "airunway.repositories" -}}
{{- $found := list -}}
{{- range . }}
{{- with regexReplaceAll "(:[^/:@]*)?(@.*)?$" . "" }}
{{- $found = append $found (. | replace "\\" "" | replace "'" "") -}}
{{- end }}
{{- end }}
{{- join "," (uniq $found) -}}
{{- end }}
