spec:
  containers:
  - name: s
    command: [bash, -l, -c]
    args: ['python3 -m sglang.launch_server --model-path $MODEL --tp 2']
    env: [{name: MODEL, value: /m}]
