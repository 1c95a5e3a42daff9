import subprocess
MODEL = "/m"
cmd = f"""CUDA_VISIBLE_DEVICES=0,1 python3 -m sglang.launch_server \\
    --model-path {MODEL} --tp {cfg['tp']} --port {args.port}"""
subprocess.Popen(cmd, shell=True)
