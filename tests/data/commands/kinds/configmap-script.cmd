apiVersion: v1
kind: ConfigMap
metadata: {name: s}
data:
  start.sh: |
    #!/bin/bash
    export A=1
    python3 -m sglang.launch_server --model-path /m --tp 8
