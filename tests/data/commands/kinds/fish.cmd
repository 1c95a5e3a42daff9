set -gx NCCL_DEBUG INFO
python -m sglang.launch_server --model-path /m --tp 2
