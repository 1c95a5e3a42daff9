spec:
  containers:
  - name: s
    command: [python3, -m, sglang.launch_server, --model-path, /m, --dist-init-addr, $(ADDR)]
    env:
    - {name: IP, value: 10.0.0.1}
    - {name: ADDR, value: "$(IP):5000"}
