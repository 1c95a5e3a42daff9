(base) root@gpu-1:/sgl-workspace# export A=1
(base) root@gpu-1:/sgl-workspace# python3 -m sglang.launch_server \
> --model-path /m \
> --tp 2
[2026-01-01 00:00:00] server_args=ServerArgs(model_path='/m')
