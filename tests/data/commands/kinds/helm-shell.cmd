        command: ["/bin/sh", "-c"]
        args:
          - |
            python3 -m sglang.launch_server --model-path {{ .Values.model.path }} \
              --tp {{ .Values.tp }} --host 0.0.0.0 --port {{ .Values.port | default 30000 }} {{- if .Values.x }} --trust-remote-code{{- end }}
