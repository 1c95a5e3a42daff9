#!/bin/bash
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
NODES=1
KIND=prefill
NAME=conf/$KIND
CONFIG=$ROOT/$NAME.yaml
export SGLANG_LOG_CONFIG=$ROOT/$NAME-log.json
EXTRA=($ROOT/$KIND.jinja)
(( PORT = 30000 + 8 ))

if (( NODES > 1 )); then
    python3 -m sglang.launch_server --config $CONFIG --model-path /models/m --nnodes $NODES --port 1
elif (( NODES == 1 && PORT < 40000 )); then
    python3 -m sglang.launch_server --config $CONFIG --model-path /models/m --chat-template "${EXTRA[0]}" --port $PORT
fi
