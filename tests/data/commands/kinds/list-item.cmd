1. Start node 1:
   - `python3 -m sglang.launch_server --model-path /m --tp 4 --node-rank 0`
2. It's then:
   - `python3 -m sglang.launch_server --model-path /m --tp 4 --node-rank 1`
