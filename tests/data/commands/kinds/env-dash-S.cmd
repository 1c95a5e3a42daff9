#!/usr/bin/env bash
set -eux; : ${MODEL:=/m}; export MODEL

python3 -m sglang.launch_server --model-path=$MODEL --tp=8