x-base: &base
  image: lmsysorg/sglang:latest
  ipc: host
  environment: &env
    NCCL_IB_HCA: mlx5_0
    SGLANG_TORCH_PROFILER_DIR: /tmp/p
services:
  redis:
    image: redis:7
    command: redis-server --save 60 1
  prefill:
    <<: *base
    environment:
      <<: *env
      ROLE: prefill
    command: >-
      python3 -m sglang.launch_server
      --model-path /models/ds
      --disaggregation-mode prefill
      --port 30000
  decode:
    <<: *base
    command: >-
      python3 -m sglang.launch_server
      --model-path /models/ds
      --disaggregation-mode decode
      --port 30001
