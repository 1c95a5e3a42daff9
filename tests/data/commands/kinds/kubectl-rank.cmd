ENVS="NCCL_DEBUG=INFO"
COMMON="--model-path /m --tp 16 --nnodes 2"
start_rank(){  # $1=pod  $2=node-rank  $3=extra
  kubectl exec "$1" -- bash -lc "cd /root/sglang && ${ENVS} exec numactl --membind=0,1 python3 -m sglang.launch_server ${COMMON} --node-rank $2 $3 > /tmp/server.log 2>&1" >/dev/null 2>&1 &
}
start_rank pod-0 0 --trust-remote-code
start_rank pod-1 1 ""
