set CUDA_VISIBLE_DEVICES=0
python -m sglang.launch_server ^
  --model-path /m ^
  --tp 2
