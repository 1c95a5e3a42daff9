#!/usr/bin/env bash
set -euo pipefail
launch() {
  local model=$1; local port="$2"
  shift 2
  CUDA_VISIBLE_DEVICES=$GPUS nohup python -m sglang.launch_server --model-path "$model" --port "$port" "$@" > log_$port 2>&1 &
}
GPUS=0,1 launch /models/a 30000 --tp 2
GPUS=2,3 launch /models/b 30001 --tp 2 --trust-remote-code
