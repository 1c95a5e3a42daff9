build_args() {
  local args=(--model-path "$1" --port 30000)
  if [[ -n "$TP" ]]; then args+=(--tp "$TP"); fi
  echo "${args[@]}"
}
TP=8
server_args=$(build_args /m)
python3 -m sglang.launch_server $server_args &
