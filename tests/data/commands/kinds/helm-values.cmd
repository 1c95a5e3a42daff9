replicaCount: 1
sglang:
  command: ["python3", "-m", "sglang.launch_server"]
  args: ["--model-path", "/m", "--tp", "2"]
  env:
    - {name: A, value: "1"}
