[Service]
ExecStart=/bin/bash -lc 'source /opt/v/bin/activate && exec python -m sglang.launch_server --model-path /m --tp 2'
