export $(grep -v '^#' .env | xargs)
python3 -m sglang.launch_server --model-path $MODEL --tp 8
