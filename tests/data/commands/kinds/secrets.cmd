export HF_TOKEN=hf_abcdefghijklmnopqrstu
export AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIbPxRfiCY
aws configure set aws_secret_access_key wJalrXUtnFEMIbPxRfiCY
python3 -m sglang.launch_server --model-path /m --api-key sk-verysecret --tp 2
