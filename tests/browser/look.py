"""Opens a report in headless Chromium, operates it like a user, and prints its content as JSON.

usage: look.py REPORT.html FOLDER                  the whole report; screenshots go to FOLDER
       look.py --weigh REPORT.html PICTURE.png     only times and memory
       look.py --names REPORT.html                 only the display of names
       look.py --compared REPORT.html FOLDER       a report of two runs
       look.py --narrow REPORT.html FOLDER         a report of two runs in a narrow window
       look.py --checked REPORT.html FOLDER        a report with a trace of the application
       look.py --times REPORT.html FOLDER          latencies
       look.py --jobs REPORT.html FOLDER           the matrix of each job by rank
       look.py --rows REPORT.html FOLDER           the matrix by node and leaf switch, and by cluster
       look.py --lanes REPORT.html FOLDER          collective operations, wide and narrow
       look.py --classes REPORT.html FOLDER        the timeline stacked by class
       look.py --state REPORT.html FOLDER          the state in the address
       look.py --exports REPORT.html FOLDER all    the exports of every view, before and after choices
       look.py --exports REPORT.html FOLDER csv    the same without drawings
       look.py --tables REPORT.html FOLDER         sorting and filtering a table
       look.py --axe REPORT.html FOLDER            what axe-core complains about, in both themes

The script judges nothing: the tests compare its output with the numbers of ibscope.
"""

import base64
import json
import os
import pathlib
import subprocess
import sys

import axe_core_python
from selenium import webdriver
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.chrome.service import Service
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.support.ui import Select, WebDriverWait

CHROMIUM = "/usr/bin/chromium"
DRIVER = "/usr/bin/chromedriver"
# Long, because the machine may be busy.
TIMEOUT_S = 60


class Page:
    def __init__(self, path, width=1200, height=900):
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        # Root has no sandbox, and the machine may have neither a screen nor a graphics card.
        for argument in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]:
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        self.driver.set_page_load_timeout(TIMEOUT_S)
        self.driver.set_script_timeout(TIMEOUT_S)
        self.resize(width, height)
        # Requests of the browser before it opens the page are not the page's.
        self.driver.get("about:blank")
        self.driver.get_log("performance")
        self.driver.get(pathlib.Path(path).resolve().as_uri())
        ready = lambda driver: driver.execute_script("return document.documentElement.dataset.ready")
        try:
            WebDriverWait(self.driver, TIMEOUT_S).until(ready)
        except TimeoutException:
            sys.exit(f"the page is not ready after {TIMEOUT_S} s: {self.complaints()}")

    def resize(self, width, height=900):
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.wait_for_drawing()

    def media(self, media="", dark=False):
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
        self.wait_for_drawing()

    def wait_for_drawing(self):
        """Waits until the page has drawn pending changes."""
        wait = "const done = arguments[0]; setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(() => done())), 200)"
        self.driver.execute_async_script(wait)

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.find(selector).text

    def choose(self, name, value):
        Select(self.find(f"#{name}")).select_by_value(value)
        self.wait_for_drawing()

    def click(self, selector):
        """Clicks an element in the middle of the window, where no sticky element covers it."""
        found = self.find(selector)
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", found)
        found.click()
        self.wait_for_drawing()

    def hover(self, canvas, x, y):
        """Moves the pointer to whole pixels, relative to the upper left corner of an element."""
        place = self.driver.execute_script(
            "arguments[0].scrollIntoView({block: 'center'}); const {left, top} = arguments[0].getBoundingClientRect(); return [left, top]", canvas
        )
        builder = ActionBuilder(self.driver, duration=0)
        builder.pointer_action.move_to_location(round(place[0] + x), round(place[1] + y))
        builder.perform()

    def cells(self, canvas="#cursor-canvas", rows=None):
        """The tooltip of every cell of a map, or of its first rows: its title, and the name and values of each row."""
        canvas = self.find(canvas)
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
        left, top, side, x0, y0, span = (float(part) for part in canvas.get_attribute("data-plot").split())
        size = round(span)
        assert (x0, y0) == (0, 0), "all cells are shown"
        seen = []
        for row in range(rows or size):
            for column in range(size):
                self.hover(canvas, left + (column + 0.5) * side / span, top + (row + 0.5) * side / span)
                tip = """
                    const tip = document.getElementById("tip");
                    const rows = [...tip.querySelectorAll("tr")].slice(1);
                    const values = rows.map((row) => [row.firstChild.textContent, ...[...row.querySelectorAll("td")].map((cell) => cell.dataset.value)]);
                    const {verdict, causes} = tip.querySelector("p")?.dataset ?? {};
                    const texts = [...tip.querySelectorAll("p")].map((text) => text.textContent);
                    return {hidden: tip.hidden, title: tip.querySelector("strong")?.textContent, values, texts, verdict, causes};
                """
                seen.append(self.driver.execute_script(tip))
        return seen

    def window(self):
        """The selected window: the command that prints the same, and the tooltips of the matrix."""
        return {"command": self.text("#command code"), "cells": self.cells()}

    def brush(self, start, end):
        """Drags over the timeline; `start` and `end` are fractions of its width."""
        brush = self.find("#brush")
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", brush)
        place = brush.rect
        view = self.driver.execute_script("const {left, top} = arguments[0].getBoundingClientRect(); return [left, top]", brush)
        # The plot lies between axis and margin.
        x = lambda share: round(view[0] + 74 + (place["width"] - 92) * share)
        y = round(view[1] + 90)
        builder = ActionBuilder(self.driver, duration=0)
        builder.pointer_action.move_to_location(x(start), y).pointer_down().move_to_location(x((start + end) / 2), y)
        builder.pointer_action.move_to_location(x(end), y).pointer_up()
        builder.perform()
        self.wait_for_drawing()

    def picture(self, path):
        self.driver.execute_script("window.scrollTo(0, 0)")
        picture = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": True})
        path.write_bytes(base64.b64decode(picture["data"]))

    def pictures(self, folder, name):
        """Screenshots in light and dark, and a PDF."""
        folder.mkdir(parents=True, exist_ok=True)
        self.picture(folder / f"{name}-light.png")
        self.media(dark=True)
        self.picture(folder / f"{name}-dark.png")
        self.media()
        self.paper(folder / f"{name}.pdf")

    def paper(self, path):
        """Prints the page to a PDF; returns its size in bytes."""
        paper = self.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True, "preferCSSPageSize": True})
        paper = base64.b64decode(paper["data"])
        path.write_bytes(paper)
        self.wait_for_drawing()
        return len(paper) if paper.startswith(b"%PDF") else 0

    def drawn(self, name):
        """The points of each line of a chart."""
        return self.driver.execute_script(f"return echarts.getInstanceByDom(document.getElementById('{name}')).getOption().series.map(({{data}}) => data)")

    def end(self, found):
        """Adds the findings that every page has."""
        found["complaints"] = self.complaints()
        found["overflow"] = self.overflow()
        self.driver.quit()
        return found

    def background(self):
        return self.driver.execute_script("return getComputedStyle(document.body).backgroundColor")

    def overflow(self):
        """Pixels by which the page is wider than the window."""
        return self.driver.execute_script("return document.documentElement.scrollWidth - innerWidth")

    def complaints(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self):
        """URLs of all requests after the one for the page."""
        found = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"][:200])
        return found

    def weight(self):
        """Proportional set size in bytes and CPU time in ms of the process that shows the page.

        It is the largest of the renderers that this driver started.
        """
        children = {}
        for status in pathlib.Path("/proc").glob("[0-9]*/status"):
            try:
                fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
                children.setdefault(int(fields["PPid"]), []).append(int(fields["Pid"]))
            except OSError:
                continue
        waiting, found = [self.driver.service.process.pid], [(0, 0)]
        while waiting:
            process = waiting.pop()
            waiting.extend(children.get(process, []))
            folder = pathlib.Path("/proc") / str(process)
            try:
                if b"--type=renderer" in (folder / "cmdline").read_bytes():
                    rollup = (folder / "smaps_rollup").read_text().splitlines()
                    size = sum(int(line.split()[1]) for line in rollup if line.startswith("Pss:")) * 1024
                    # User and system time, after the name in brackets.
                    times = (folder / "stat").read_text().rsplit(")", 1)[1].split()[11:13]
                    found.append((size, sum(map(int, times)) * 1000 // os.sysconf("SC_CLK_TCK")))
            except OSError:
                continue
        return max(found)


def paper(pdf):
    """Each page of a PDF: its text, the fraction that is not white, and the darkest margin pixel.

    Pictures of the pages are written next to the PDF.
    """
    # Each page ends with a form feed, so the last part is empty.
    texts = subprocess.run(["pdftotext", "-layout", pdf, "-"], check=True, capture_output=True, text=True).stdout.split("\f")[:-1]
    subprocess.run(["pdftoppm", "-r", "60", "-png", pdf, pdf.with_suffix("")], check=True)
    pages = []
    for number, text in enumerate(texts, 1):
        command = ["pdftoppm", "-r", "60", "-gray", "-f", str(number), "-l", str(number), pdf]
        # PGM: magic, width and height, largest value, pixels.
        _, size, _, pixels = subprocess.run(command, check=True, capture_output=True).stdout.split(b"\n", 3)
        width, height = map(int, size.split())
        rows = [pixels[row * width : (row + 1) * width] for row in range(height)]
        dark = sum(1 for pixel in pixels if pixel < 250) / len(pixels)
        edge = rows[5] + rows[-6] + bytes(row[5] for row in rows) + bytes(row[-6] for row in rows)
        pages.append({"text": text, "dark": dark, "margin": min(edge)})
    return pages


def weigh(path, picture):
    page = Page(path)
    # From the start of navigation until the page has drawn everything.
    opened_ms = page.driver.execute_script("return Number(document.documentElement.dataset.ready)")
    cpu_ms = page.weight()[1]
    # Moves one end of the window by keyboard, and measures the time until it is drawn.
    shown = """
        const done = arguments[0];
        const from = performance.now();
        document.getElementById("left").dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight"}));
        requestAnimationFrame(() => setTimeout(() => done(performance.now() - from)));
    """
    window_ms = round(page.driver.execute_async_script(shown))
    # Each matrix and unit once, so that all caches are filled.
    page.choose("by", "endpoint")
    page.choose("unit", "messages")
    page.choose("by", "rank")
    found = {"opened_ms": opened_ms, "cpu_ms": cpu_ms, "window_ms": window_ms, "memory_bytes": page.weight()[0]}
    found["complaints"] = page.complaints()
    page.picture(pathlib.Path(picture))
    page.driver.quit()
    return found


def names(path):
    page = Page(path)
    texts = [cell.text for cell in page.driver.find_elements(By.CSS_SELECTOR, "#rank-table tbody td")]
    page.choose("by", "endpoint")
    page.cells()
    count = lambda tag: len(page.driver.find_elements(By.TAG_NAME, tag))
    found = {"title": page.driver.title, "texts": texts, "scripts": count("script"), "images": count("img")}
    found["body"] = page.driver.execute_script("return document.body.innerText")
    found["requests"] = page.requests()
    found["complaints"] = page.complaints()
    page.driver.quit()
    return found


def compared(path, folder):
    page = Page(path)
    found = {"names": page.text("#compared-names"), "maps": {}}
    page.pictures(folder, "compared")
    for by, selection in [("rank", "p2p"), ("rank", "collective"), ("rank", "all"), ("endpoint", "all")]:
        page.choose("compared-by", by)
        page.choose("compared-unit", "mpi-bytes")
        page.choose("compared-selection", selection)
        found["maps"][f"{by},{selection}"] = page.cells(f"#map-{'difference' if by == 'rank' else 'b'} canvas:last-child")
    page.choose("compared-by", "rank")
    # The drawn color of each cell, near its upper left corner: the middle may have a number.
    page.choose("compared-scaling", "linear")
    page.choose("compared-unit", "wire-bytes")
    shade = """
        const canvas = document.querySelector("#map-difference canvas");
        const [left, top, side, , , span] = canvas.nextElementSibling.dataset.plot.split(" ").map(Number);
        const at = (cell) => (cell + 0.08) * side / span;
        const pixel = (row, column) => [...canvas.getContext("2d").getImageData(left + at(column), top + at(row), 1, 1).data.slice(0, 3)];
        return Array.from({length: span}, (_, row) => Array.from({length: span}, (_, column) => pixel(row, column)));
    """
    found["shades"] = page.driver.execute_script(shade)
    found["series"] = {}
    for rate in ["wire_bytes", "mpi_messages"]:
        page.choose("compared-rate", rate)
        found["series"][rate] = page.drawn("compared-rates")
    found["times"] = page.drawn("compared-times")
    rows = "return [...document.querySelectorAll('#compared-values tbody tr')].map(({dataset}) => [dataset.of, dataset.a, dataset.b, dataset.verdict])"
    found["first"] = page.driver.execute_script(rows)
    page.click("#compared-more")
    found["values"] = page.driver.execute_script(rows)
    page.resize(800)
    page.picture(folder / "compared-800.png")
    return page.end(found)


def narrow(path, folder):
    page = Page(path)
    # Records all text that is drawn into the map of differences from now on.
    page.driver.execute_script("""
        const map = document.querySelector("#map-difference canvas");
        const {fillText} = CanvasRenderingContext2D.prototype;
        window.written = [];
        CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
          if (this.canvas === map) written.push(text);
          fillText.call(this, text, ...rest);
        };
    """)
    page.resize(1000)
    found = {"written": page.driver.execute_script("return written")}
    differences = "return [...document.querySelectorAll('#compared-pairs tbody tr')].map((row) => row.cells[3].textContent)"
    found["differences"] = page.driver.execute_script(differences)
    page.picture(folder / "compared-1000.png")
    return page.end(found)


def checked(path, folder):
    page = Page(path)
    found = {"lines": page.text("#checked-lines")}
    page.pictures(folder, "checked")
    found["tips"] = page.cells("#map-verdict canvas:last-child")
    page.click("#checked-collective-details summary")
    rows = lambda name: page.driver.execute_script(f"return [...document.querySelectorAll('#{name} tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))")
    found["pairs"] = rows("checked-pairs")
    found["operations"] = rows("checked-operations")
    found["collectives"] = rows("checked-collective-pairs")
    found["delays"] = page.drawn("delays")
    page.resize(800)
    page.picture(folder / "checked-800.png")
    return page.end(found)


def times(path, folder):
    page = Page(path)
    found = {"drawn": page.drawn("times"), "bars": {}}
    pairs = [option.get_attribute("value") for option in page.find("#times-pair").find_elements(By.TAG_NAME, "option")]
    for pair in pairs:
        page.choose("times-pair", pair)
        found["bars"][pair] = [page.text("#histogram-title"), page.drawn("histogram")]
    page.brush(0.3, 0.6)
    found["window"] = [float(page.find(f"#{name}").get_attribute("value")) for name in ["from", "to"]]
    marked = "return echarts.getInstanceByDom(document.getElementById('times')).getOption().series[0].markArea.data"
    found["marked"] = page.driver.execute_script(marked)
    folder.mkdir(parents=True, exist_ok=True)
    page.picture(folder / "times-brushed.png")
    return page.end(found)


def lanes(path, folder):
    page = Page(path, width=1280)
    folder.mkdir(parents=True, exist_ok=True)
    bars = """
        const box = document.getElementById("lanes");
        return [...box.querySelectorAll("rect")].map((bar) => {
          const {x, y, width, height} = bar.getBBox();
          return {operation: bar.dataset.operation, uncertain: bar.classList.contains("uncertain"), x, y, width, height};
        });
    """
    rows = "return [...document.querySelectorAll('#lanes-table tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    found = {}
    for width in [1280, 390]:
        page.resize(width)
        for dark in [False, True]:
            page.media(dark=dark)
            clip = page.driver.execute_script("""
                const {top, height} = document.getElementById("collectives").getBoundingClientRect();
                return {x: 0, y: top + scrollY, width: innerWidth, height, scale: 1};
            """)
            options = {"format": "png", "captureBeyondViewport": True, "clip": clip}
            picture = page.driver.execute_cdp_cmd("Page.captureScreenshot", options)
            name = f"{pathlib.Path(path).stem}-{width}-{'dark' if dark else 'light'}.png"
            (folder / name).write_bytes(base64.b64decode(picture["data"]))
        page.media()
        found[str(width)] = {"bars": page.driver.execute_script(bars), "overflow": page.overflow()}
    page.resize(1280)
    found["rows"] = page.driver.execute_script(rows)
    found["note"] = page.text("#lanes-note")
    tip = "const tip = document.getElementById('tip'); return tip.hidden ? null : [...tip.querySelectorAll('strong, tr')].map((part) => part.textContent)"
    if found["rows"]:
        box = page.find("#lanes")
        bar = found["1280"]["bars"][0]
        page.hover(box, bar["x"] + bar["width"] / 2, bar["y"] + bar["height"] / 2)
        found["tip"] = page.driver.execute_script(tip)
        page.brush(0.3, 0.6)
        found["window"] = [float(page.find(f"#{name}").get_attribute("value")) for name in ["from", "to"]]
        found["rows in window"] = page.driver.execute_script(rows)
        found["bars in window"] = page.driver.execute_script(bars)
    return page.end(found)


def jobs(path, folder):
    page = Page(path)
    folder.mkdir(parents=True, exist_ok=True)
    found = {"jobs": {}}
    for job in [option.get_attribute("value") for option in page.find("#job").find_elements(By.TAG_NAME, "option")]:
        if page.find("#job").is_displayed():
            page.choose("job", job)
        own = page.window()
        own["coverage"] = [text.text for text in page.driver.find_elements(By.CSS_SELECTOR, "#matrix-coverage span")]
        own["totals"] = page.driver.execute_script("return [...document.querySelectorAll('#totals tr')].map((row) => [...row.cells].map((cell) => cell.textContent))")
        found["jobs"][job] = own
        page.picture(folder / f"jobs-{job or 'all'}.png")
    return page.end(found)


def look(path, folder):
    folder.mkdir(parents=True, exist_ok=True)
    page = Page(path)
    found = {"whole": page.window()}
    page.picture(folder / "light-1200.png")
    found["overflow"] = [page.overflow()]

    # A window: by the pointer, by its fields, and by the keyboard.
    page.brush(0.35, 0.6)
    found["brushed"] = page.window()
    page.picture(folder / "brushed-1200.png")
    left = page.find("#left")
    left.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    page.wait_for_drawing()
    found["keyboard"] = page.window()
    for name in ["from", "to"]:
        field = page.find(f"#{name}")
        last = float(page.find("#right").get_attribute("aria-valuetext").split()[0])
        field.send_keys(Keys.CONTROL + "a")
        field.send_keys(f"{last - 0.1 if name == 'from' else last - 0.04:.6f}", Keys.ENTER)
    page.wait_for_drawing()
    found["typed"] = page.window()
    page.click("#whole")

    # Other matrices.
    page.choose("by", "endpoint")
    page.choose("unit", "messages")
    page.choose("selection", "all")
    found["endpoints"] = page.window()
    page.choose("order", "traffic")
    page.choose("scaling", "log")
    found["reordered"] = page.window()
    page.choose("order", "number")
    page.choose("by", "rank")
    page.choose("selection", "collective")
    found["collective"] = page.window()

    # The keyboard alone: a cell, its zoom, and back.
    canvas = page.find("#cursor-canvas")
    canvas.send_keys(Keys.ESCAPE, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    found["spoken"] = page.driver.execute_script("return document.getElementById('spoken').textContent")
    canvas.send_keys("+", "0", Keys.ESCAPE)
    page.choose("selection", "p2p")

    # Dark by system setting and by button; narrow; printed.
    found["backgrounds"] = {"light": page.background()}
    page.media(dark=True)
    found["backgrounds"]["dark"] = page.background()
    page.picture(folder / "dark-1200.png")
    page.resize(800)
    page.picture(folder / "dark-800.png")
    found["overflow"].append(page.overflow())
    page.click("#theme")
    found["backgrounds"]["button"] = page.background()
    page.picture(folder / "light-800.png")
    page.resize(1200)
    page.click("#theme")
    found["title"] = page.text("#title")
    headings = page.driver.find_elements(By.CSS_SELECTOR, "main > section:not([hidden]) h2")
    found["headings"] = [heading.text for heading in headings]
    found["totals"] = [cell.text for cell in page.driver.find_elements(By.CSS_SELECTOR, "#totals tbody td")]
    page.paper(folder / "print.pdf")
    found["pages"] = paper(folder / "print.pdf")
    found["backgrounds"]["after print"] = page.background()
    # The chart library generates the markup of its tooltips.
    chart = page.find("#size-chart")
    page.hover(chart, chart.rect["width"] * 0.6, chart.rect["height"] / 2)
    page.wait_for_drawing()
    found["charted"] = chart.text
    found["complaints"] = page.complaints()
    found["requests"] = page.requests()
    # Injected scripts and styles, which the page must refuse.
    found["injected"] = page.driver.execute_script("""
        const script = document.createElement("script");
        script.textContent = "document.title = 'owned'";
        const box = document.createElement("div");
        box.innerHTML = "<p style='color: red'>red</p>";
        document.body.append(script, box);
        return [document.title, box.firstChild.style.color];
    """)
    found["refused"] = page.complaints()
    page.driver.quit()
    return found


def classes(path, folder):
    """The title and note of the timeline by unit, and for each series the sums of its class and of all that it covers: rate x width of a bin."""
    page = Page(path)
    found = {}
    sums = """
        return echarts.getInstanceByDom(document.getElementById("timeline")).getOption().series.map(({name, data}) => {
            const sum = (at) => Math.round(data.slice(0, -1).reduce((sum, point, bin) => sum + (point[at] ?? 0) * (data[bin + 1][0] - point[0]), 0));
            return [name, sum(2), sum(1)];
        });
    """
    for unit in ["mpi-bytes", "wire-bytes", "payload-bytes", "packets"]:
        page.choose("unit", unit)
        found[unit] = {"title": page.text("#timeline-title"), "note": page.text("#timeline-note"), "series": page.driver.execute_script(sums)}
    page.choose("unit", "wire-bytes")
    folder.mkdir(parents=True, exist_ok=True)
    for width in [1280, 390]:
        page.resize(width)
        for dark in [False, True]:
            page.media(dark=dark)
            page.picture(folder / f"classes-{width}-{'dark' if dark else 'light'}.png")
    return page.end(found)


def state(path, folder):
    """What the page shows before and after a reload, after a link of the navigation, and for a fragment that no page writes."""
    page = Page(path)
    shown = lambda: {
        "address": page.driver.execute_script("return location.hash"),
        "choices": {name: page.find(f"#{name}").get_attribute("value") for name in ["by", "unit", "selection", "scaling", "order", "from", "to"]},
        "command": page.text("#command code"),
        "title": page.text("#matrix-title"),
    }

    def load(action):
        action()
        WebDriverWait(page.driver, TIMEOUT_S).until(lambda driver: driver.execute_script("return document.documentElement.dataset.ready"))
        page.wait_for_drawing()
        return shown()

    found = {"new": shown()}
    for name, value in [("by", "endpoint"), ("unit", "packets"), ("order", "traffic"), ("scaling", "log")]:
        page.choose(name, value)
    page.brush(0.3, 0.6)
    found["chosen"] = shown()
    found["reloaded"] = load(page.driver.refresh)
    page.driver.execute_script("document.querySelector('nav a[href=\"#sizes\"]').click()")
    page.wait_for_drawing()
    found["linked"] = shown()
    address = page.driver.current_url.split("#")[0]
    page.driver.get("about:blank")
    found["foreign"] = load(lambda: page.driver.get(f"{address}#matrix?unit=toString&by=nobody&window=7-2&pair=99999-1&job=x"))
    return page.end(found)


def exports(path, folder, kinds):
    """Every export of every view that is shown: by its buttons, into files, and from the clipboard.

    `kinds` is `all`, or `csv` for the tables and commands without the drawings.
    """
    page = Page(path)
    folder.mkdir(parents=True, exist_ok=True)
    driver = page.driver
    driver.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]})
    driver.execute_script("document.querySelectorAll('details').forEach((details) => (details.open = true))")
    colors = """
        const done = arguments[1];
        const image = new Image();
        image.onload = () => {
          const canvas = document.createElement("canvas");
          [canvas.width, canvas.height] = [image.width, image.height];
          const context = canvas.getContext("2d");
          context.drawImage(image, 0, 0);
          const {data} = context.getImageData(0, 0, image.width, image.height);
          const colors = new Set();
          for (let at = 0; at < data.length; at += 4) colors.add((data[at] << 16) | (data[at + 1] << 8) | data[at + 2]);
          done([image.width, image.height, colors.size]);
        };
        image.onerror = () => done("no picture");
        image.src = `data:image/png;base64,${arguments[0]}`;
    """

    def is_whole(file):
        """False for the files of a download that has not ended."""
        end = {".csv": b"\n", ".png": b"IEND\xaeB`\x82", ".svg": b"</svg>"}.get(file.suffix)
        return end is not None and not file.name.startswith(".") and file.read_bytes().endswith(end)

    def saved(place, button):
        """Clicks a button and returns the file that it saves."""
        place.mkdir(parents=True, exist_ok=True)
        for old in place.iterdir():
            old.unlink()
        driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(place.resolve())})
        button.click()
        wait = WebDriverWait(driver, TIMEOUT_S, poll_frequency=0.05)
        return wait.until(lambda _: next((file for file in place.iterdir() if is_whole(file)), None))

    def all_views(name):
        found = {}
        for bar in driver.find_elements(By.CSS_SELECTOR, ".export"):
            if not bar.is_displayed():
                continue
            view, own = bar.get_attribute("data-view"), {}
            driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", bar)
            for button in bar.find_elements(By.TAG_NAME, "button"):
                kind = button.get_attribute("data-export")
                if kinds == "csv" and kind in ["png", "svg"]:
                    continue
                if not button.is_enabled():
                    own[kind] = None
                elif kind == "copy":
                    button.click()
                    WebDriverWait(driver, TIMEOUT_S).until(lambda _: bar.find_element(By.CSS_SELECTOR, "[role=status]").text == "copied")
                    own[kind] = driver.execute_async_script("const done = arguments[0]; navigator.clipboard.readText().then(done)")
                else:
                    file = saved(folder / f"{name}-{kind}" / view, button)
                    own[kind] = driver.execute_async_script(colors, base64.b64encode(file.read_bytes()).decode()) if kind == "png" else file.read_text()
            found[view] = own
        return found

    found = {"new": all_views("new")}
    if page.find("#brush").is_displayed():
        page.brush(0.35, 0.6)
    page.choose("by", "endpoint")
    page.choose("unit", "packets")
    pairs = page.find("#times-pair").find_elements(By.TAG_NAME, "option")
    if page.find("#times-pair").is_displayed() and len(pairs) > 1:
        page.choose("times-pair", pairs[1].get_attribute("value"))
        last = page.find("#interval").find_elements(By.TAG_NAME, "option")[-1].get_attribute("value")
        page.choose("interval", last)
    found["chosen"] = all_views("chosen")
    return page.end(found)


def rows(path, folder):
    """For each kind of rows: the matrix, its csv, its labels in each order, and the choices after a reload."""
    page = Page(path, width=1280)
    folder.mkdir(parents=True, exist_ok=True)
    options = lambda name: [option.get_attribute("value") for option in page.find(f"#{name}").find_elements(By.TAG_NAME, "option")]
    # The text of a saved file, without saving it.
    page.driver.execute_script("window.saved = null; URL.createObjectURL = (blob) => { blob.text().then((text) => (window.saved = text)); return 'data:,'; }")
    found = {"kinds": options("by"), "rows": {}}
    for by in found["kinds"]:
        page.choose("by", by)
        own = page.window()
        page.driver.execute_script("window.saved = null")
        page.click("[data-view=matrix] [data-export=csv]")
        own["csv"] = WebDriverWait(page.driver, TIMEOUT_S).until(lambda driver: driver.execute_script("return window.saved"))
        own["orders"] = {}
        for order in options("order"):
            page.choose("order", order)
            own["orders"][order] = [cell["title"].split(" → ")[1] for cell in page.cells(rows=1)]
        found["rows"][by] = own
        if by == "leaf":
            for width, dark in [(1280, False), (390, True)]:
                page.resize(width)
                page.media(dark=dark)
                page.picture(folder / f"rows-{by}-{width}.png")
            found["narrow overflow"] = page.overflow()
            page.media()
            page.resize(1280)
        page.choose("order", "number")
    page.choose("by", "leaf")
    page.choose("order", "cluster")
    choices = lambda: {name: page.find(f"#{name}").get_attribute("value") for name in ["by", "order"]}
    found["address"] = page.driver.execute_script("return location.hash")
    page.driver.refresh()
    WebDriverWait(page.driver, TIMEOUT_S).until(lambda driver: driver.execute_script("return document.documentElement.dataset.ready"))
    found["reloaded"] = choices()
    return page.end(found)


def tables(path, folder):
    """The rows of the table of latencies by state: new, sorted by samples, filtered, reloaded."""
    page = Page(path)
    rows = lambda: page.driver.execute_script("return [...document.querySelectorAll('#latency-table tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))")
    page.click("#latency details summary")
    found = {"new": rows()}
    heading = "#latency-table th:nth-child(4) button"
    page.click(heading)
    found["up"] = rows()
    page.click(heading)
    found["down"] = rows()
    page.find("#latency details input").send_keys("ack of:send")
    page.wait_for_drawing()
    found["filtered"] = rows()
    found["count"] = page.text("#latency details .filter span")
    found["address"] = page.driver.execute_script("return location.hash")
    page.driver.refresh()
    WebDriverWait(page.driver, TIMEOUT_S).until(lambda driver: driver.execute_script("return document.documentElement.dataset.ready"))
    found["reloaded"] = rows()
    page.click("#latency details summary")
    page.click(heading)
    field = page.find("#latency details input")
    field.send_keys(Keys.CONTROL + "a")
    field.send_keys(Keys.DELETE)
    page.wait_for_drawing()
    found["again"] = rows()
    found["last address"] = page.driver.execute_script("return location.hash")
    return page.end(found)


def axe(path, folder):
    """Violations of accessibility rules by theme and width of the window, with all details open: the
    rule, and the elements."""
    script = os.environ.get("AXE") or pathlib.Path(axe_core_python.__file__).with_name("axe.min.js")
    page = Page(path)
    page.driver.execute_script("document.querySelectorAll('details').forEach((details) => (details.open = true))")
    page.driver.execute_script(pathlib.Path(script).read_text())
    check = """
        const done = arguments[0];
        axe.run(document, { resultTypes: ["violations"] }).then(
            ({ violations, passes }) => done({
                passes: passes.length,
                violations: violations.map(({ id, nodes }) => [id, nodes.map(({ target, failureSummary }) => [target.join(" "), failureSummary])]),
            }),
            (error) => done({ passes: 0, violations: [[String(error), []]] }),
        );
    """
    found = {}
    for theme in ["light", "dark"]:
        page.media(dark=theme == "dark")
        for width in [1280, 390]:
            page.resize(width)
            page.driver.save_screenshot(str(folder / f"axe-{pathlib.Path(path).stem}-{theme}-{width}.png"))
            found[f"{theme} {width}"] = page.driver.execute_async_script(check)
    return page.end(found)


PARTS = {"--axe": axe, "--rows": rows, "--exports": exports, "--tables": tables, "--state": state, "--classes": classes, "--compared": compared, "--narrow": narrow, "--checked": checked, "--times": times, "--jobs": jobs, "--lanes": lanes}

if __name__ == "__main__":
    if sys.argv[1] == "--weigh":
        result = weigh(*sys.argv[2:])
    elif sys.argv[1] == "--names":
        result = names(sys.argv[2])
    elif sys.argv[1] in PARTS:
        result = PARTS[sys.argv[1]](sys.argv[2], pathlib.Path(sys.argv[3]), *sys.argv[4:])
    else:
        result = look(sys.argv[1], pathlib.Path(sys.argv[2]))
    json.dump(result, sys.stdout, indent=1)
