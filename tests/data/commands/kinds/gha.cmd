jobs:
  bench:
    runs-on: gpu
    steps:
      - name: launch
        env:
          A: "1"
        run: |
          python3 -m sglang.launch_server --model-path /m --tp ${{ matrix.tp }} &
          sleep 60
