FROM lmsysorg/sglang:v0.5.9
ARG TP=8
ENV MODEL=/models/x
CMD python3 -m sglang.launch_server --model-path $MODEL --tp ${TP} \
    --port ${PORT:-30000}
