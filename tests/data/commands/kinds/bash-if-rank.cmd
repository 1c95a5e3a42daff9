if [ "$RANK" -eq 0 ]; then
    python3 -m sglang.launch_server --model-path "$MODEL_DIR" --tp 32 --nnodes 4 --node-rank "$RANK" --host 0.0.0.0 --port 30000
else
    python3 -m sglang.launch_server --model-path "$MODEL_DIR" --tp 32 --nnodes 4 --node-rank "$RANK"
fi
