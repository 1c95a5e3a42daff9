ARGS=(
  --model-path /m   # the model
  --tp 8
  # --dp 2
  --served-model-name "a b"
)
python3 -m sglang.launch_server "${ARGS[@]}"
