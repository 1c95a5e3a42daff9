param(
  [string]$Model = "Qwen/Qwen3-8B",
  [int]$Port = 30000,
  [switch]$Install
)

$ErrorActionPreference = "Stop"
$env:HF_ENDPOINT = "https://hf-mirror.com"
$Ctx = 8192
python -m sglang.launch_server `
  --model-path $Model `
  --port $Port `
  --context-length $Ctx `
  --chat-template D:\models\my\chat.jinja `
  --mem-fraction-static 0.30
