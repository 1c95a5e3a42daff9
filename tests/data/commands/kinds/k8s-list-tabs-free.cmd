kind: List
items:
- kind: Service
- kind: Pod
  spec:
    containers:
    - image: lmsysorg/sglang
      command: ["sglang"]
      args: ["serve","--model-path","/m","--tp","8"]
