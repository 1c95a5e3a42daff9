ARGS=(--model-path /m)
if ! [[ " ${ARGS[@]} " =~ " --port " ]]; then
  ARGS+=(--port "${P:-8080}")
fi
exec python3 -m sglang.launch_server "${ARGS[@]}"
