MODELS="/a /b"
for m in $MODELS; do python3 -m sglang.launch_server --model-path $m --tp 8; done