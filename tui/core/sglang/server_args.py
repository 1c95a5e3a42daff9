"""The `server_args=` line of a log: ServerArgs(a=1, ...) up to 0.5.18, a dict from 0.5.19 on."""

import ast
import re

_SIMPLE = re.compile(r"(?<!\w)(\w{1,64})'?(?:=|: )('[^']{0,2000}'|-?\d{1,18}(?:\.\d{1,18})?|True|False|None)(?=[,)}])")
_SECRET = re.compile(r"api_key|token$|password|secret")


def parse_server_args(body: str) -> dict[str, object] | None:
    """All values, secrets as "***"; of a line that was cut off the simple ones. None where nothing can be read."""
    text = body.partition("server_args=")[2].strip()
    found: dict[str, object] = {}
    items: list[tuple[object, ast.expr]] = []
    try:
        tree = ast.parse(text, mode="eval").body
        if isinstance(tree, ast.Dict):
            items = [
                (key.value, value)
                for key, value in zip(tree.keys, tree.values, strict=True)
                if isinstance(key, ast.Constant)
            ]
        elif isinstance(tree, ast.Call):
            items = [(keyword.arg, keyword.value) for keyword in tree.keywords]
        for name, value in items:
            try:
                found[str(name)] = ast.literal_eval(value)
            except (ValueError, TypeError):
                found[str(name)] = ast.unparse(value)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        found = {name: ast.literal_eval(value) for name, value in _SIMPLE.findall(text)}
    for name, secret in found.items():
        if isinstance(secret, str) and _SECRET.search(name):
            found[name] = "***"
    return found or None
