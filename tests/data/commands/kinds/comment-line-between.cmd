python3 -m sglang.launch_server \
  --model-path /m \
  # --dp 8 \
  --tp 8 \
  --port 30000
