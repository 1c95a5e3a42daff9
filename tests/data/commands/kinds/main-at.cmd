main() {
  python3 -m sglang.launch_server --model-path "${1:?model}" --tp "${2:-8}"
}
main "$@"
