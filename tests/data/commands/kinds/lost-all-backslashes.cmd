python3 -m sglang.launch_server
--model-path /m
--tp 2
--trust-remote-code
