    containers:
      - name: s
        command:
          - python3
          - -m
          - sglang.launch_server
          {{- if .Values.local }}
          - --model-path=/local
          {{- else }}
          - --model-path=/remote
          {{- end }}
          - --tp=8
