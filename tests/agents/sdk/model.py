# SPDX-License-Identifier: Apache-2.0
"""A model that is a script, behind OpenAI's chat completions: it knows the questions of docs/agents.md."""
import http.server
import json
import threading

KEY = "key-of-the-model"
FIBONACCI = "a, b = 0, 1\nfor _ in range(40):\n    a, b = b, a + b\nprint(a)"


def _variables(names):
    keys = [n for n in names if "KEY" in n or "TOKEN" in n or n.startswith("SANDBOX")]
    return "My tools see %s, and %s." % (", ".join(names), "no key" if not keys else "keys: " + ", ".join(keys))


# What is in the question -> the tool and its arguments, what is said of its answer.
KNOWS = {
    "40th Fibonacci": ("run_python", {"code": FIBONACCI}, lambda a: "The 40th Fibonacci number is %s." % a["stdout"].strip()),
    "environment variables": ("variables", {}, _variables),
    "Fetch http://169.254.169.254/": ("fetch", {"url": "http://169.254.169.254/latest/meta-data/"}, lambda a: "That did not work: %s" % a["error"]),
}


def answer(messages, tools):
    question = next(m["content"] for m in messages if m["role"] == "user")
    tool, arguments, words = next(row for words, row in KNOWS.items() if words in question)
    if messages[-1]["role"] == "tool":
        return {"role": "assistant", "content": words(json.loads(messages[-1]["content"]))}
    (described,) = [t["function"] for t in tools if t["function"]["name"] == tool]
    assert set(described["parameters"]["required"]) == set(arguments) and described["description"]
    call = {"id": "call-1", "type": "function", "function": {"name": tool, "arguments": json.dumps(arguments)}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        good = self.path == "/v1/chat/completions" and self.headers["Authorization"] == "Bearer " + KEY
        data = json.dumps({"choices": [{"message": answer(body["messages"], body["tools"])}]} if good else {}).encode()
        self.send_response(200 if good else 401)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Model:
    """.url is what MODEL_URL has to be."""

    def __init__(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d/v1" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.server.shutdown()
        self.server.server_close()
