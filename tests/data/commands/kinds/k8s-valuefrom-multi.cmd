apiVersion: v1
kind: ConfigMap
metadata: {name: cfg}
data:
  MODEL: /models/q
  TP: "8"
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: sgl}
spec:
  template:
    spec:
      initContainers:
      - name: fetch
        image: busybox
        command: ["sh", "-c", "wget http://x/model"]
      containers:
      - name: metrics
        image: prom/node-exporter
        args: ["--path.rootfs=/host"]
      - name: server
        image: lmsysorg/sglang:v0.5.9
        command: ["python3", "-m", "sglang.launch_server"]
        args:
        - --model-path
        - $(MODEL)
        - --tp
        - $(TP)
        - --node-rank
        - $(POD_INDEX)
        - --api-key=$(KEY)
        envFrom:
        - configMapRef: {name: cfg}
        - secretRef: {name: other}
        env:
        - name: KEY
          valueFrom: {secretKeyRef: {name: s, key: k}}
        - name: POD_INDEX
          valueFrom: {fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}
