LOG=run-$(date +%Y%m%d-%H%M%S).log
python -m sglang.launch_server --model-path /models/m --port 30001 --served-model-name m%MODEL% > $LOG 2>&1 &
