. ./env.sh
python3 -m sglang.launch_server --model-path "$MODEL_PATH" --tp "$TP"
