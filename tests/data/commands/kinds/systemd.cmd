[Unit]
Description=SGLang %i
After=network.target
[Service]
User=sgl
WorkingDirectory=/opt/sgl
Environment="HF_HOME=/data/hf cache" CUDA_VISIBLE_DEVICES=0,1
Environment=PORT=30000
EnvironmentFile=-/etc/sglang/%i.env
ExecStartPre=/usr/bin/nvidia-smi
ExecStart=/opt/venv/bin/python -m sglang.launch_server \
    --model-path /models/%i \
    # a comment
    --served-model-name "my model" \
    --port ${PORT} $EXTRA
Restart=always
LimitMEMLOCK=infinity
[Install]
WantedBy=multi-user.target
