CMD="python3 -m sglang.launch_server"
CMD+=" --model-path /m"
CMD+=" --tp 8"
echo "$CMD"
eval "$CMD" 2>&1 | tee log