+ export A=1
+ A=1
+ exec python3 -m sglang.launch_server --model-path /m --tp 4
