#!/bin/bash
#SBATCH --job-name=sgl
#SBATCH --nodes=2
#SBATCH --gres=gpu:8
module load cuda/12.4
source /opt/conda/etc/profile.d/conda.sh
conda activate sglang
export NCCL_DEBUG=INFO
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
nodes_array=($nodes)
head_node=${nodes_array[0]}
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)
srun --ntasks=2 --nodes=2 --export=ALL,FOO=bar \
  python3 -m sglang.launch_server --model-path /m --tp 16 \
  --dist-init-addr ${head_node_ip}:5000 --nnodes $SLURM_NNODES --node-rank $SLURM_NODEID &
wait
