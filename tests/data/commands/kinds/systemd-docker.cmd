[Service]
ExecStartPre=-/usr/bin/docker rm -f s
ExecStart=/usr/bin/docker run --rm --gpus all -e A=1 --name s lmsysorg/sglang:latest \
  python3 -m sglang.launch_server --model-path /m --tp 8
