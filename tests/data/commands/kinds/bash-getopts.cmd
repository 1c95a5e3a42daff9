#!/bin/bash
MODEL=/m
PORT=30000
while [[ $# -gt 0 ]]; do
  case "$1" in
    --model) MODEL="$2"; shift 2;;
    --port) PORT="$2"; shift 2;;
    *) echo bad; exit 1;;
  esac
done
ARGS=(--model-path "$MODEL" --port "$PORT")
if [ -n "${TP:-}" ]; then
  ARGS+=(--tp "$TP")
fi
ARGS+=(--trust-remote-code)
exec python3 -m sglang.launch_server "${ARGS[@]}" "$@"
