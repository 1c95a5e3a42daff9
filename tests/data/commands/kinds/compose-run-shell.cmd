services:
  s:
    command: /bin/bash -c "pip install x && python3 -m sglang.launch_server --model-path /m --tp 8"
