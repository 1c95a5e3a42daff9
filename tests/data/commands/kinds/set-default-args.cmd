#!/bin/bash
if [ $# -eq 0 ]; then
  set -- \
    --model-path /m \
    --tp 4
fi
printf ' %q' "$@"
python3 -m sglang.launch_server "$@"
