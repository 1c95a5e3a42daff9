[program:sglang]
command=/opt/v/bin/python -m sglang.launch_server --model-path /m
    --tp 8 --port %(ENV_PORT)s
directory=/opt
environment=NCCL_DEBUG="INFO",HF_HOME="/data/hf"
autostart=true
