        - name: sglang-leader
          command:
            - sh
            - -c
            - "ulimit -l unlimited; python3 -m sglang.launch_server --model-path $(MODEL) --tp 16 --dist-init-addr $LWS_LEADER_ADDRESS:20000 --nnodes $LWS_GROUP_SIZE --node-rank $LWS_WORKER_INDEX"
          env:
            - name: MODEL
              value: /m
