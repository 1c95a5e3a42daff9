# values of a chart that starts sglang
app: qwen
modelName: Qwen/Qwen2.5-72B-Instruct
replicaCount: 1
extraArgs:
  - "--tp"
  - "8"
  - --schedule-conservativeness=0.5
  - "--enable-metrics"
resources:
  limits:
    nvidia.com/gpu: "8"
service:
  ports:
    - name: http-sglang
      targetPort: 30000
