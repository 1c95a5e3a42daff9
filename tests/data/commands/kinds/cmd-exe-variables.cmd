@echo off
set CUDA_VISIBLE_DEVICES=0,1
set MODEL=D:\models\qwen
set PORT=8000
python -m sglang.launch_server ^
  --model-path %MODEL% ^
  --port %PORT% ^
  --log-level-http %LEVEL% ^
  --tp 2
pause
