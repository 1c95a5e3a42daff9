I can't get this to work on my machine. The command I've used is

python3 -m sglang.launch_server --model-path /m --tp 8 --trust-remote-code

It's an 8xH100 node and I'm on v0.5.9
