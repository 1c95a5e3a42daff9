spec:
  predictor:
    model:
      runtime: sglang
      args: >-
        python3 -m sglang.launch_server --model-path /m --tp 8
