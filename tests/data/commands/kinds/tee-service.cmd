sudo tee /etc/systemd/system/s.service <<EOF
[Service]
Environment=A=1
ExecStart=/usr/bin/python3 -m sglang.launch_server --model-path /m --tp 8
EOF
sudo systemctl daemon-reload
