MODE=${1:-decode}
case "$MODE" in
  prefill) EXTRA="--disaggregation-mode prefill" ;;
  decode) EXTRA="--disaggregation-mode decode" ;;
esac
python3 -m sglang.launch_server --model-path /m $EXTRA
