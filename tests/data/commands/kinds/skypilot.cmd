resources:
  accelerators: H100:8
envs:
  MODEL: /models/x
setup: |
  pip install sglang
run: |
  conda activate s
  python -m sglang.launch_server --model-path $MODEL --tp $SKYPILOT_NUM_GPUS_PER_NODE --port 8080
