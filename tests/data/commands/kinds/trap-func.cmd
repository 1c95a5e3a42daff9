cleanup() { kill $PID; }
trap cleanup EXIT
python3 -m sglang.launch_server --model-path /m --tp 8 &
PID=$!
while true; do sleep 1; done
