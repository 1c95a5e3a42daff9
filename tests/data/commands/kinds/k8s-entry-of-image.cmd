spec:
  containers:
    - name: sgl
      image: registry/sglang-server:1
      args:
        - "--model-path"
        - "/m"
        - "--tp"
        - "4"
