until curl -s http://x; do sleep 1; done
python3 -m sglang.launch_server --model-path /m --tp 8