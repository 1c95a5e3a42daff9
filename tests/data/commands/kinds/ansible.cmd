- hosts: gpu
  tasks:
    - name: start
      ansible.builtin.shell: |
        nohup python3 -m sglang.launch_server --model-path {{ model_path }} --tp {{ tp }} > x.log 2>&1 &
      environment:
        A: "1"
