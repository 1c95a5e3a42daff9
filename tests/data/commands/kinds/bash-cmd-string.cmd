MODEL_DIR=$1
CMD="python3 -m sglang.launch_server --model-path ${MODEL_DIR} --tp ${TP_SIZE} --host 0.0.0.0"
if [ "$DEBUG" = 1 ]; then CMD="$CMD --log-level debug"; fi
echo $CMD
$CMD
