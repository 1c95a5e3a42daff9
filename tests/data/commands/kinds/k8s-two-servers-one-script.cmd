spec:
  containers:
  - name: s
    command: ["/bin/bash","-c"]
    args:
      - |
        python3 -m sglang.launch_server --model-path /m --port 1 --base-gpu-id 0 &
        python3 -m sglang.launch_server --model-path /m --port 2 --base-gpu-id 4 &
        wait
