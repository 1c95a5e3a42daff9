Hi, I don't know why this isn't working. I've started it with:

```bash
export NCCL_DEBUG=INFO
python3 -m sglang.launch_server \
  --model-path /m \
  --tp 8
```

and then it's hanging: "python -m sglang.launch_server" doesn't respond.
