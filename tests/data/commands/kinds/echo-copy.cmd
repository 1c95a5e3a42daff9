ARGS="--model-path /m --tp 8"
GPUS=0,1
echo "CUDA_VISIBLE_DEVICES=$GPUS python3 -m sglang.launch_server $ARGS" > launch_cmd.txt
docker exec -d c bash -c "X=1 CUDA_VISIBLE_DEVICES=$GPUS python3 -m sglang.launch_server $ARGS > /tmp/log 2>&1"
