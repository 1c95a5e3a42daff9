Resources:
  T:
    Properties:
      ContainerDefinitions:
        - Name: s
          Image: !Sub 'x:${Tag}'
          EntryPoint: [python3, -m, sglang.launch_server]
          Command: [--model-path, !Ref Model, --tp, '8']
          Environment:
            - Name: A
              Value: '1'
