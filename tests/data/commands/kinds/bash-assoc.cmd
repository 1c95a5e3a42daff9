declare -A M=([a]=/x [b]=/y)
python3 -m sglang.launch_server --model-path ${M[a]} --tp 8
