{{/*
A second one of the same component, in another namespace, that works on the same deployments: the two would fight, as
Leases are of one namespace each. Where helm talks to a cluster it is refused; `helm template` knows none, and says nothing.
Of a release that is limited to namespaces and brings no rights nothing is asked: who installs it may not list Deployments
of others.
*/}}
{{- define "airunway-common.alone" -}}
{{- $own := .root.Values.watchNamespaces -}}
{{- if or (not $own) .root.Values.rbac.create -}}
{{- range (lookup "apps/v1" "Deployment" "" "").items -}}
{{- $labels := .metadata.labels | default dict -}}
{{- $same := and (eq (get $labels "app.kubernetes.io/part-of") "airunway") (eq (get $labels "app.kubernetes.io/name") $.name) -}}
{{- if and $same (ne .metadata.namespace $.root.Release.Namespace) -}}
{{- $theirs := list -}}
{{- range (index .spec.template.spec.containers 0).args -}}
{{- if hasPrefix "--watch-namespaces=" . -}}
{{- $theirs = splitList "," (trimPrefix "--watch-namespaces=" .) -}}
{{- end -}}
{{- end -}}
{{- $shared := list -}}
{{- range $own -}}
{{- if has . $theirs -}}{{- $shared = append $shared . -}}{{- end -}}
{{- end -}}
{{- if or (not $own) (not $theirs) $shared -}}
{{- fail (printf "Deployment %s in namespace %s already works on %s: two would fight over the same deployments. Uninstall one of them, or give each namespaces of its own (watchNamespaces)" .metadata.name .metadata.namespace (join ", " $theirs | default "all namespaces")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
