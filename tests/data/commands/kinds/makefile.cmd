MODEL ?= /m
TP := 8

.PHONY: serve
serve:
	@CUDA_VISIBLE_DEVICES=0 python3 -m sglang.launch_server \
		--model-path $(MODEL) --tp $(TP) --port $(PORT)
