tmux new-session -d -s srv
tmux send-keys -t srv "export A=1 && python -m sglang.launch_server --model-path /m --tp 2" C-m
