python3 -m sglang.launch_server \
  --model-path /m \  # the model
  --tp 8 \
  --port 30000
