{{/* A process of the platform: dict of root, name, replicas (none: somebody else decides), command, api (whether it
     talks to Kubernetes), grace, and as text: env and annotations of its own, more (ports and probes). */}}
{{- define "fermi.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .root.Release.Name }}-{{ .name }}
  labels:
    {{- include "fermi.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .name }}
spec:
  {{- if .replicas }}
  replicas: {{ .replicas }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "fermi.selector" .root | nindent 6 }}
      app.kubernetes.io/component: {{ .name }}
  strategy: {type: {{ .strategy | default "RollingUpdate" }}}
  template:
    metadata:
      labels:
        {{- include "fermi.labels" .root | nindent 8 }}
        app.kubernetes.io/component: {{ .name }}
      {{- if .annotations }}
      annotations:
        {{- .annotations | nindent 8 }}
      {{- end }}
    spec:
      {{- if .api }}
      serviceAccountName: {{ .root.Release.Name }}
      {{- end }}
      automountServiceAccountToken: {{ .api }}
      terminationGracePeriodSeconds: {{ .grace | default 30 }}
      {{- include "fermi.pod" .root | nindent 6 }}
      containers:
        - name: {{ .name }}
          {{- include "fermi.container" .root | nindent 10 }}
          {{- if .env }}
          {{- .env | nindent 12 }}
          {{- end }}
          command: {{ toJson .command }}
          {{- if .more }}
          {{- .more | nindent 10 }}
          {{- end }}
          resources:
            {{- toYaml (index .root.Values .name).resources | nindent 12 }}
{{- end }}
