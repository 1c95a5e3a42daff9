services:
  s:
    entrypoint: [sh, -c]
    command: python3 -m sglang.launch_server --model-path /m --tp 2
