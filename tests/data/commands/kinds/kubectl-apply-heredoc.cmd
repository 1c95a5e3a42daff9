TP=8
cat <<EOF | kubectl apply -f -
apiVersion: v1
kind: Pod
spec:
  containers:
  - name: s
    command: ["python3","-m","sglang.launch_server","--model-path","/m","--tp","${TP}"]
EOF
