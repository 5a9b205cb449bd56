{{- define "fermi.labels" -}}
{{ include "fermi.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "fermi.selector" -}}
app.kubernetes.io/name: fermi
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fermi.secret" -}}
valueFrom: {secretKeyRef: {name: {{ index . 0 }}, key: {{ index . 1 }}}}
{{- end }}

{{/* What every pod of ours has beside its containers. */}}
{{- define "fermi.pod" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 1000
  runAsGroup: 1000
  fsGroup: 1000
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- if .Values.image.pullSecrets }}
imagePullSecrets:
{{- range .Values.image.pullSecrets }}
  - name: {{ . }}
{{- end }}
{{- end }}
volumes:
  - name: data
    persistentVolumeClaim: {claimName: {{ .Values.data.existingClaim | default (printf "%s-data" .Release.Name) }}}
  - name: tmp
    emptyDir: {sizeLimit: 1Gi}
{{- end }}

{{/* What every container of ours has beside its command. */}}
{{- define "fermi.container" -}}
image: {{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: data, mountPath: /data}
  - {name: tmp, mountPath: /tmp}
env:
  - name: POD_IP
    valueFrom: {fieldRef: {fieldPath: status.podIP}}
  - name: FERMI_INTERNAL_ADDRESS
    value: $(POD_IP)
  - name: FERMI_ALLOWED_HOSTS
    value: {{ prepend .Values.allowedHosts "$(POD_IP)" | join "," | quote }}
  - name: FERMI_SECRET_KEY
    {{- include "fermi.secret" (list .Values.secretName "FERMI_SECRET_KEY") | nindent 4 }}
  - name: FERMI_METRICS_TOKEN
    valueFrom: {secretKeyRef: {name: {{ .Values.secretName }}, key: FERMI_METRICS_TOKEN, optional: true}}
  {{- if .Values.postgresql.bundled }}
  - name: POSTGRES_PASSWORD
    {{- include "fermi.secret" (list .Values.secretName "POSTGRES_PASSWORD") | nindent 4 }}
  - name: DATABASE_URL
    value: postgresql://fermi:$(POSTGRES_PASSWORD)@{{ .Release.Name }}-postgresql:5432/fermi
  {{- else }}
  - name: DATABASE_URL
    {{- include "fermi.secret" (list .Values.secretName "DATABASE_URL") | nindent 4 }}
  {{- end }}
  - name: REDIS_URL
    {{- if .Values.redis.bundled }}
    value: redis://{{ .Release.Name }}-redis:6379/0
    {{- else }}
    {{- include "fermi.secret" (list .Values.secretName "REDIS_URL") | nindent 4 }}
    {{- end }}
  - name: FERMI_DATA
    value: /data
  - name: FERMI_DATA_ROOTS
    value: {{ .Values.dataRoots | quote }}
  - name: FERMI_MASTER_PORTS
    value: {{ .Values.masterPorts | quote }}
  - name: FERMI_PUBLIC_URL
    value: {{ .Values.publicUrl | quote }}
  {{- if .Values.trustedProxies }}
  - name: FERMI_TRUSTED_PROXIES
    value: {{ join "," .Values.trustedProxies | quote }}
  {{- end }}
  - name: FERMI_DOOR_HOST
    value: {{ .Values.doors.host | quote }}
  {{- if .Values.files.place }}
  - name: FERMI_FILES
    value: {{ .Values.files.place | quote }}
  - name: FERMI_FILES_ENDPOINT
    value: {{ .Values.files.endpoint | quote }}
  - name: FERMI_FILES_KEY
    valueFrom: {secretKeyRef: {name: {{ .Values.secretName }}, key: FERMI_FILES_KEY, optional: true}}
  - name: FERMI_FILES_SECRET
    valueFrom: {secretKeyRef: {name: {{ .Values.secretName }}, key: FERMI_FILES_SECRET, optional: true}}
  {{- end }}
  - name: FERMI_STAND_BY
    value: "0"
  - name: FERMI_LOG
    value: json
  {{- if .Values.traces.endpoint }}
  - name: OTEL_EXPORTER_OTLP_ENDPOINT
    value: {{ .Values.traces.endpoint | quote }}
  - name: OTEL_SERVICE_NAME
    value: {{ .Values.traces.serviceName | quote }}
  - name: OTEL_EXPORTER_OTLP_HEADERS
    valueFrom: {secretKeyRef: {name: {{ .Values.secretName }}, key: OTEL_EXPORTER_OTLP_HEADERS, optional: true}}
  {{- end }}
{{- $own := list "POD_IP" "DATABASE_URL" "REDIS_URL" "POSTGRES_PASSWORD" "FERMI_INTERNAL_ADDRESS" "FERMI_ALLOWED_HOSTS" "FERMI_SECRET_KEY" "FERMI_METRICS_TOKEN" "FERMI_METRICS_PORT" "FERMI_METRICS_BIND" "FERMI_METRICS_OPEN" "FERMI_DATA" "FERMI_DATA_ROOTS" "FERMI_MASTER_PORTS" "FERMI_PUBLIC_URL" "FERMI_TRUSTED_PROXIES" "FERMI_DOOR_HOST" "FERMI_FILES" "FERMI_FILES_ENDPOINT" "FERMI_FILES_KEY" "FERMI_FILES_SECRET" "FERMI_STAND_BY" "FERMI_LOG" "OTEL_EXPORTER_OTLP_ENDPOINT" "OTEL_SERVICE_NAME" "OTEL_EXPORTER_OTLP_HEADERS" }}
  {{- range $name, $value := .Values.settings }}
  {{- if has $name $own }}{{ fail (printf "settings: %s has a value of its own in values.yaml" $name) }}{{ end }}
  {{- if has $name $.Values.secretSettings }}{{ fail (printf "settings: %s is in secretSettings, too" $name) }}{{ end }}
  - name: {{ $name }}
    value: {{ $value | toString | quote }}
  {{- end }}
  {{- range $name := .Values.secretSettings }}
  {{- if has $name $own }}{{ fail (printf "secretSettings: %s has a value of its own in values.yaml" $name) }}{{ end }}
  - name: {{ $name }}
    {{- include "fermi.secret" (list $.Values.secretName $name) | nindent 4 }}
  {{- end }}
{{- end }}
