{{- define "tailrace.config" -}}
{{- if not .Values.config }}{{ fail "config is empty: set it to the text of cdc.toml" }}{{ end }}
{{- $config := fromToml .Values.config }}
{{- if hasKey $config "Error" }}{{ fail (printf "config is not TOML: %s" $config.Error) }}{{ end }}
{{- if not $config.name }}{{ fail "config has no `name`" }}{{ end }}
{{- range $sink, $settings := .Values.sinks }}
{{- if not (hasKey ($config.sinks | default dict) $sink) }}{{ fail (printf "sinks.%s: config has no section [sinks.%s]" $sink $sink) }}{{ end }}
{{- end }}
{{- toJson $config }}
{{- end }}

{{- define "tailrace.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "tailrace.labels" -}}
app.kubernetes.io/name: tailrace
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tailrace.image" -}}
{{- $image := .root.Values.image }}
{{- $digest := ternary $image.fullDigest $image.digest .full }}
{{- if $digest }}{{ $image.repository }}@{{ $digest }}
{{- else }}{{ $image.repository }}:{{ $image.tag | default .root.Chart.AppVersion }}{{ if .full }}-full{{ end }}
{{- end }}
{{- end }}

{{- /* One process. Takes root, config, component, command, port, ready (the path of readiness), full, own (its values). */}}
{{- define "tailrace.pod" -}}
{{- $root := .root }}
metadata:
  labels:
    {{- include "tailrace.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
  annotations:
    # A changed configuration is a new pod.
    tailrace/config: {{ sha256sum $root.Values.config }}
    {{- with $root.Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ $root.Values.serviceAccountName }}
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: {{ .stopSeconds }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile:
      type: RuntimeDefault
  {{- with $root.Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: tailrace
      image: {{ include "tailrace.image" . | quote }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args: {{ toJson .command }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: ["ALL"]
      env:
        - name: TAILRACE_HTTP_LISTEN
          value: "0.0.0.0:8087"
        {{- with concat .env $root.Values.env (.own.env | default list) }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - name: http
          containerPort: {{ .port }}
      startupProbe:
        httpGet: &live {path: /livez, port: http, scheme: {{ .scheme }}}
        periodSeconds: 2
        failureThreshold: 60
      livenessProbe:
        httpGet: *live
        periodSeconds: 10
        timeoutSeconds: 5
      readinessProbe:
        httpGet: {path: {{ .ready }}, port: http, scheme: {{ .scheme }}}
        periodSeconds: 5
        timeoutSeconds: 5
      resources: {{- toYaml (.own.resources | default .resources) | nindent 8 }}
      volumeMounts:
        - {name: config, mountPath: /etc/tailrace, readOnly: true}
        - {name: tmp, mountPath: /tmp}
        {{- if .full }}
        - {name: spark, mountPath: /var/cache/tailrace/spark}
        {{- end }}
        {{- with concat $root.Values.volumeMounts (.own.volumeMounts | default list) }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: config
      configMap:
        name: {{ include "tailrace.name" $root }}
    - name: tmp
      emptyDir: {}
    {{- if .full }}
    - name: spark
      emptyDir: {}
    {{- end }}
    {{- with concat $root.Values.volumes (.own.volumes | default list) }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $root.Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
