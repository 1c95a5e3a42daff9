type: service
image: lmsysorg/sglang:latest
env:
  - MODEL_ID=/models/x
  - HF_TOKEN
commands:
  - pip install foo
  - python3 -m sglang.launch_server
    --model-path $MODEL_ID
    --port 8000
port: 8000
