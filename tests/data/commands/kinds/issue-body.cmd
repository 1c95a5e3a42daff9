### Checklist
- [x] I've searched.

### Describe the bug
It's crashing:
```
[2026-01-01 10:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/sgl/x.py", line 3, in <module>
RuntimeError: CUDA error
```

### Reproduction
node 0
```bash
GLOO_SOCKET_IFNAME=eth0 python3 -m sglang.launch_server --model-path /m --tp 16 --nnodes 2 --node-rank 0 --dist-init-addr 10.0.0.1:5000
```
node 1
```bash
GLOO_SOCKET_IFNAME=eth0 python3 -m sglang.launch_server --model-path /m --tp 16 --nnodes 2 --node-rank 1 --dist-init-addr 10.0.0.1:5000
```
### Environment
```
Python: 3.10
```
