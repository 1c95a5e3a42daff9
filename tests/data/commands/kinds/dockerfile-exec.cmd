FROM lmsysorg/sglang:v0.5.9
ARG TP=8
ENV HF_HOME=/data/hf \
    NCCL_DEBUG=INFO
ENV MODEL /models/x
WORKDIR /work
RUN pip install foo
ENTRYPOINT ["python3", "-m", "sglang.launch_server"]
CMD ["--model-path", "/models/x", \
     "--tp", "8"]
