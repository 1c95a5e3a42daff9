start:
  script:
    - export A=1
    - python3 -m sglang.launch_server --model-path /m --tp 8 &
    - sleep 100
