"""Reports in Chromium. Screenshots are kept in out/report, for people to look at."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import axe_core_python
import numpy as np
import pytest
from tiny_datasets import episode, write_dataset

import rlds_tools

OUT = Path(__file__).parents[2] / "out" / "report"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# Runs in a copy of the page, whose policy allows more than that of the page: notes problems, and
# writes them into the document.
PROBE = """
const report = {errors: [], requests: null, violations: null, scrolls: null};
addEventListener("error", (event) => report.errors.push(String(event.message)), true);
addEventListener("securitypolicyviolation", (event) => report.errors.push(event.blockedURI));
console.error = (...words) => report.errors.push(words.join(" "));
addEventListener("load", async () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
  const names = performance.getEntriesByType("resource").map((entry) => entry.name);
  report.requests = names.filter((name) => !name.startsWith("data:"));
  report.scrolls = document.documentElement.scrollWidth > innerWidth;
  report.videos = [...document.querySelectorAll("video")].map((video) => video.readyState > 0);
  const checked = await axe.run();
  report.violations = checked.violations.map((v) => v.id + ": " + v.nodes[0].html.slice(0, 200));
  const result = document.createElement("pre");
  result.id = "probe";
  result.textContent = JSON.stringify(report);
  document.body.append(result);
  parent.postMessage(result.textContent, "*");
});
"""
# Chromium has no window as narrow as a phone.
IFRAME_PAGE = """<!DOCTYPE html><html><body style="margin: 0">
<iframe src="{name}" width="{width}" height="2000" style="border: 0"></iframe>
<script>
addEventListener("message", (event) => {{
  const result = document.createElement("pre");
  result.id = "probe";
  result.textContent = event.data;
  document.body.append(result);
}});
</script></body></html>"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium"),
]


def run_chromium(tmp_path, page, theme, *options):
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=20000"]
    command += [f"--blink-settings=preferredColorScheme={int(theme == 'light')}"]
    process = subprocess.run(
        [*command, *options, page.as_uri()], capture_output=True, text=True, timeout=180
    )
    return process.stdout


def faulty_episodes():
    rng = np.random.default_rng(0)
    for index, length in enumerate((40, 25, 2, 60, 33, 50)):
        content = episode(length, seed=index)
        steps = content["steps"]
        x, y = np.meshgrid(np.arange(8), np.arange(8))
        waves = np.sin(x + y + np.arange(length)[:, None, None] / 4)
        steps["observation"]["camera"] = np.repeat((waves * 99 + 120)[..., None], 3, 3).astype("u1")
        steps["observation"]["position"] = rng.normal(size=(length, 3)).astype(np.float32).cumsum(0)
        steps["observation"]["position"][:, 2] = 0
        if index == 1:
            steps["observation"]["camera"][:] = 0
        if index == 3:
            steps["is_last"][:] = False
        yield content


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 390])
def test_a_page_is_accessible_and_loads_nothing(width, theme, tmp_path):
    path = write_dataset(tmp_path / "waves" / "1.0.0", faulty_episodes(), "waves")
    page = tmp_path / "page.html"
    report = rlds_tools.report(path)
    report.save(page)
    axe = (Path(axe_core_python.__file__).parent / "axe.min.js").read_text()
    probe = f"<script>{axe}</script><script>{PROBE}</script></head>"
    policy = re.escape(html.escape("script-src ")) + '[^"]*'
    copy = re.sub(policy, "script-src &#x27;unsafe-inline&#x27;", report.content, count=1)
    (tmp_path / "copy.html").write_text(copy.replace("</head>", probe, 1))
    (tmp_path / "frame.html").write_text(IFRAME_PAGE.format(name="copy.html", width=width))
    text = run_chromium(tmp_path, tmp_path / "frame.html", theme, "--dump-dom")
    result = json.loads(
        html.unescape(re.search(r'<pre id="probe">(.*?)</pre>', text, re.DOTALL)[1])
    )
    assert result["violations"] == []
    assert result["errors"] == []
    assert result["requests"] == []
    assert not result["scrolls"], "the page is wider than its window"
    assert result["videos"]
    assert all(result["videos"])
    # The page itself, with its own policy.
    OUT.mkdir(parents=True, exist_ok=True)
    (tmp_path / "frame.html").write_text(IFRAME_PAGE.format(name="page.html", width=width))
    picture = OUT / f"waves_{width}_{theme}.png"
    options = (f"--screenshot={picture}", f"--window-size={width},2000")
    if width < 500:
        run_chromium(tmp_path, tmp_path / "frame.html", theme, *options)
    else:
        run_chromium(tmp_path, page, theme, *options)
    assert picture.stat().st_size > 20_000
