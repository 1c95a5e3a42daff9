for i in 0 1 2 3; do
  CUDA_VISIBLE_DEVICES=$i python -m sglang.launch_server --model-path /m --port $((30000+i)) &
done
wait