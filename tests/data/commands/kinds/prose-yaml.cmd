I deployed with this and it isn't working

spec:
  containers:
  - name: s
    env:
    - name: A
      value: '1'
    command:
    - python3
    - -m
    - sglang.launch_server
    - --model-path=/m
    - --tp=2

What's wrong?
