Set:
```bash
export NCCL_DEBUG=INFO
MODEL=/m
```
Then:
```bash
python3 -m sglang.launch_server --model-path $MODEL --tp 8
```
