python -m sglang.launch_server ^
  --model-path /m ^
  --tp 2