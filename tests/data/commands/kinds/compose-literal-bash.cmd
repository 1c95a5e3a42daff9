services:
  sglang:
    image: lmsysorg/sglang:v0.5.9
    environment:
      - HF_TOKEN=${HF_TOKEN}
      - NCCL_DEBUG=WARN
      - CUDA_VISIBLE_DEVICES
    env_file:
      - ./common.env
    shm_size: 32g
    command:
      - bash
      - -lc
      - |
        set -e
        exec python3 -m sglang.launch_server \
          --model-path $${MODEL:-/models/x} \
          --tp ${TP:-4} --port 30000
