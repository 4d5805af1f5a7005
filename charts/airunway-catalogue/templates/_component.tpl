{{/* One part of the catalogue's chart. */}}
{{- define "airunway-catalogue.part" -}}
{{- $v := .root.Values -}}
{{- $args := list "catalogue" (printf "--max-discoveries=%d" (int $v.maxDiscoveries)) -}}
{{- $rights := .root.Files.Get "files/rights.yaml" | fromYaml -}}
{{- $own := list -}}
{{- range $rights.own }}
{{- if not (has "secrets" .resources) }}
{{- $own = append $own . -}}
{{- else if $v.registrySecrets }}
{{- $own = append $own (set . "resourceNames" (sortAlpha $v.registrySecrets)) -}}
{{- end }}
{{- end }}
{{- $_ := set $rights "own" $own -}}
{{- /* Jobs of ClusterModelTemplates are in the release's own namespace, which is watched too. */}}
{{- if $v.watchNamespaces }}
{{- $_ := set $rights "own" (concat $rights.own $rights.watched) -}}
{{- end }}
{{- $egress := list -}}
{{- if $v.networkPolicy.registryPorts }}
{{- $ports := list -}}
{{- range $v.networkPolicy.registryPorts }}
{{- $ports = append $ports (dict "protocol" "TCP" "port" (int .)) -}}
{{- end }}
{{- $egress = append $egress (dict "ports" $ports) -}}
{{- end }}
{{- $component := dict "root" .root "name" "airunway-catalogue" "args" $args "egress" $egress "guard" (.root.Files.Get "files/guard.yaml" | replace "@variables@" (join "," $v.discovery.variables)) "rights" $rights -}}
{{- include (printf "airunway-common.%s" .part) $component -}}
{{- end }}
