ssh node1 'cd /w && NCCL_DEBUG=INFO python -m sglang.launch_server --model-path /m --tp 16 --nnodes 2 --node-rank 0 --dist-init-addr node1:5000' &
ssh node2 'cd /w && python -m sglang.launch_server --model-path /m --tp 16 --nnodes 2 --node-rank 1 --dist-init-addr node1:5000' &
