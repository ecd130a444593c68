#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The page of the server in a browser: it shows the model, compares two sentences, and shows errors.
# Skips without chromium (Debian package `chromium`). PAGE_SHOTS=FOLDER keeps pictures of it.
. "${0%/*}/lib.sh"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
  skip "the page in a browser: chromium is not installed"

# browse URL ARG...: the page after five seconds of its own clock is in page.html, the browser's
# console in browser.log.
browse() {
  url=$1
  shift
  # The sandbox needs namespaces that containers and root often lack; the page is our own.
  timeout 300 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
    --no-proxy-server --user-data-dir="$work/profile" --enable-logging=stderr --v=0 \
    --virtual-time-budget=5000 "$@" "$url" >page.html 2>browser.log || fail "the browser: $url"
}

# shows ID TEXT: the element has exactly this text.
shows() {
  python3 - "$1" "$2" <<'PYTHON' || fail "on the page: $1"
import html.parser, re, sys
class Finder(html.parser.HTMLParser):
    depth, text, names = 0, "", ("link", "meta", "br", "input")
    def handle_starttag(self, tag, attributes):
        if tag in self.names: return
        if self.depth or dict(attributes).get("id") == sys.argv[1]: self.depth += 1
    def handle_endtag(self, tag):
        if self.depth and tag not in self.names: self.depth -= 1
    def handle_data(self, data):
        if self.depth: self.text += data
finder = Finder()
finder.feed(open("page.html").read())
text = re.sub(r"\s+", " ", finder.text).strip()
if not re.fullmatch(sys.argv[2], text):
    sys.exit(f"{sys.argv[1]} shows '{text}', not '{sys.argv[2]}'")
PYTHON
  pass
}

serve server
for i in 1 2 3 4 5 6; do
  curl -sS --fail "$address/embed" -d '{"inputs": ["a b c", "c b"]}' -o /dev/null || fail "embed"
done
browse "http://$address/#a=a+b&b=a+c+b" --dump-dom
shows state ready
shows models 'tinyready32[0-9]+mean(cpu|interp)'
shows similarity '-?[01]\.[0-9]{4}'
shows facts 'is the cosine of two vectors of 32 numbers; 9 tokens, .* ms with the way through the network; the shape was .*'
shows kernels 'compiled6compiles since the server is ready0'
shows totals 'requests with results7requests that failed0.*batches of a shape that was new[12]'
shows problem ''
if grep -qE 'CONSOLE.*(Refused|Error|error)' browser.log; then fail "errors in the browser"; fi
similarity=$(sed -n 's/.*id="similarity">\([^<]*\)<.*/\1/p' page.html)
curl -sS --fail "$address/embed" -d '{"inputs": ["a b", "a c b"]}' | python3 -c "
import json, sys
x, y = json.load(sys.stdin)
size = lambda v: sum(i * i for i in v) ** 0.5
exit(abs(sum(i * j for i, j in zip(x, y)) / size(x) / size(y) - $similarity) > 6e-5)" || fail "the similarity: $similarity"
pass

# Nothing but its own script and this server: the policy has the hashes of the build.
curl -sS --fail -D head -o body "$address/"
has head "default-src 'none'; script-src 'sha256-"
if grep -qE '(src|href)="(https?:)?//' body; then fail "the page names other places"; fi
pass

# Markup in a sentence is text.
browse "http://$address/#a=%3Cimg+src%3Dx+onerror%3Dalert(1)%3E&b=a" --dump-dom
shows facts 'is the cosine of .*'
if grep -q '<img' page.html; then fail "markup of a sentence is part of the page"; fi
pass
if [ -n "${PAGE_SHOTS:-}" ]; then
  browse "http://$address/#a=a+b&b=a+c+b" --screenshot="$PAGE_SHOTS/page.png" --window-size=1280,1150
  browse "http://$address/#a=a+b&b=a+c+b" --screenshot="$PAGE_SHOTS/phone.png" --window-size=500,1900
  browse "http://$address/#a=a+b&b=a+c+b" --screenshot="$PAGE_SHOTS/dark.png" --window-size=1280,1150 \
    --blink-settings=preferredColorScheme=0
fi

# A load that failed is shown with its reason, and the model serves on.
port=$(python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
serve reloaded --admin-port "$port"
mv tiny/config.json saved.json
curl -sS -X POST "http://127.0.0.1:$port/v2/repository/models/tiny/load" -o answer || fail "the load"
has answer 'config.json'
browse "http://$address/#a=a+b&b=a" --dump-dom
shows problem 'tiny could not be loaded again, and serves as before: .*config\.json.*'
shows state ready
shows similarity '-?[01]\.[0-9]{4}'
mv saved.json tiny/config.json

# An error of the server is shown in its words.
echo secret >keys
serve closed --keys keys
browse "http://$address/#a=a+b&b=a" --dump-dom
shows similarity ''
shows facts 'The server did not embed them: status 401: a key is needed: Authorization: Bearer KEY'
shows state ready

done_with
