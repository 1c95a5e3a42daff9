cat > /tmp/run.sh << 'EOF'
#!/bin/bash
python3 -m sglang.launch_server --model-path /m --tp $1
EOF
chmod +x /tmp/run.sh
/tmp/run.sh 8
