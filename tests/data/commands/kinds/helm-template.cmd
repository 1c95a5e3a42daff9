apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "chart.fullname" . }}
  labels:
    {{- include "chart.labels" . | nindent 4 }}
spec:
  replicas: {{ .Values.replicas }}
  template:
    spec:
      {{- with .Values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: sglang
          image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default "latest" }}"
          command:
            - python3
            - -m
            - sglang.launch_server
          args:
            - --model-path
            - {{ .Values.model | quote }}
            - --tp={{ .Values.tp }}
            {{- if .Values.trust }}
            - --trust-remote-code
            {{- end }}
            {{- range .Values.extraArgs }}
            - {{ . | quote }}
            {{- end }}
            - --port
            - "30000"
          env:
            - name: HF_TOKEN
              value: {{ .Values.hfToken }}
