srun bash -c 'python3 -m sglang.launch_server --model-path /m --tp 16 --nnodes 2 --node-rank $SLURM_PROCID --dist-init-addr "$MASTER_ADDR:5000"'
