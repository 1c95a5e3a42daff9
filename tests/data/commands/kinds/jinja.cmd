services:
  sgl:
    command: >
      python3 -m sglang.launch_server --model-path {{ model }} 
      {% if trust %}--trust-remote-code{% endif %}
      --tp {{ tp | default(8) }}
