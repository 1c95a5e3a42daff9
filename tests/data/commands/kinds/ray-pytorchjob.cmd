apiVersion: kubeflow.org/v1
kind: PyTorchJob
spec:
  pytorchReplicaSpecs:
    Master:
      template:
        spec:
          containers:
          - name: pytorch
            command: ["bash","-c"]
            args:
            - >
              export NCCL_DEBUG=INFO;
              python3 -m sglang.launch_server --model-path /m --tp 16 --nnodes 2
              --node-rank 0 --dist-init-addr $(hostname -i):5000
    Worker:
      template:
        spec:
          containers:
          - name: pytorch
            command: ["bash","-c"]
            args:
            - >
              python3 -m sglang.launch_server --model-path /m --tp 16 --nnodes 2
              --node-rank ${RANK} --dist-init-addr ${MASTER_ADDR}:5000
