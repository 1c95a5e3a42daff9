apiVersion: apps/v1
kind: StatefulSet
spec:
  template:
    spec:
      containers:
        - name: sgl
          image: lmsysorg/sglang:latest
          args: ["python3","-m","sglang.launch_server","--model-path=/m","--tp=4"]
