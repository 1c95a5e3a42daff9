PORTS=(30000 30001)
GPUS=("0,1" "2,3")
for i in "${!PORTS[@]}"; do
  CUDA_VISIBLE_DEVICES=${GPUS[$i]} python3 -m sglang.launch_server --model-path /m --port ${PORTS[$i]} &
done