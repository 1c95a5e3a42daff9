cmd=$(cat <<- EOF
python -m sglang.launch_server --model-path ${M:-/m} \
--tp 1 \
--port 6011
EOF
)
if [ "-d" = "$1" ]; then
  cmd="nohup ${cmd} > x.log 2>&1 &"
fi
eval $cmd
