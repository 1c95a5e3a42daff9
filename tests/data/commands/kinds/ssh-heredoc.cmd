ssh gpu1 <<'EOF'
export A=1
nohup python -m sglang.launch_server --model-path /m --tp 4 >x 2>&1 &
EOF