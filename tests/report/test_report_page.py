import base64
import hashlib
import html.parser
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from assay.core.errors import UsageError
from assay.core.store import Store
from assay.core.table import Chart, Table
from assay.report.html import render_report, write_report

ANALYSIS = Table(
    "some.analysis",
    "An <analysis>",
    pl.DataFrame({"system": ["local:smollm2", "openai:big"], "v": [1.0, 2.0]}),
    notes=["A note."],
    chart=Chart("bar", "system", "v"),
)


class Page(html.parser.HTMLParser):
    """Elements of a page, as a browser's parser would see them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.texts: list[str] = []
        self._within: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._within.append(tag)
            if tag == "script":
                self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        if self._within and self._within[-1] == tag:
            self._within.pop()

    def handle_data(self, data: str) -> None:
        if self._within and self._within[-1] == "script":
            self.scripts[-1] += data
        elif not self._within:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())


@pytest.fixture(scope="module")
def page_text(three_runs: list[Any]) -> str:
    return render_report(three_runs, tables=[ANALYSIS], title="A report")


@pytest.fixture(scope="module")
def page(page_text: str) -> Page:
    return Page(page_text)


@pytest.fixture(scope="module")
def hostile(hostile_runs: list[Any]) -> str:
    return render_report(hostile_runs)


def test_every_part_is_there(page: Page) -> None:
    ids = {attrs.get("id") for _, attrs in page.elements}
    parts = ("ranking", "comparison", "groups", "costs", "endings", "trials")
    assert {f"b1-{part}" for part in parts} | {"analyses", "provenance", "theme", "data"} <= ids
    anchors = {attrs["href"][1:] for tag, attrs in page.elements if tag == "a" and attrs["href"]}
    assert anchors <= ids
    for words in ("openai:big leads decisively", "An <analysis>", "A note.", "95 % intervals", "assay run drawn"):
        assert words in page.text


def test_nothing_on_the_page_points_outside_it(page: Page, page_text: str) -> None:
    for _, attrs in page.elements:
        for name in ("src", "href", "action", "data", "poster", "srcset", "formaction"):
            value = attrs.get(name)
            assert value is None or value.startswith(("#", "data:image/")), value
    style = re.search(r"<style>(.*?)</style>", page_text, re.DOTALL)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    assert not {"link", "iframe", "object", "embed", "base", "form"} & {tag for tag, _ in page.elements}


def _policy(page: Page) -> str:
    return next(
        a["content"] or "" for t, a in page.elements if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    )


def test_the_policy_allows_exactly_the_scripts_of_the_page(page: Page, page_text: str) -> None:
    policy = _policy(page)
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    scripts = [text for text in page.scripts if not text.startswith("{")]
    digests = {"'sha256-" + base64.b64encode(hashlib.sha256(t.encode()).digest()).decode() + "'" for t in scripts}
    allowed = re.search(r"script-src ([^;]*)", policy)
    assert allowed is not None
    assert set(allowed[1].split()) == digests
    assert not any(name.startswith("on") or name == "style" for _, attrs in page.elements for name in attrs)


def test_hostile_outputs_names_and_errors_stay_text(hostile: str) -> None:
    page = Page(hostile)
    assert len(page.scripts) == 3
    assert "\x1b" not in hostile
    assert "\u202e" not in hostile
    assert not any(attrs.get("src") == "x" for _, attrs in page.elements)
    assert "<script>document.title='owned'</script>" in page.text
    assert "␛[31mred" in page.text
    data = json.loads(page.scripts[0])
    assert any("<script>" in json.dumps(figure) for figure in data["figures"].values())


def test_stand_in_data_are_labelled_at_the_top(hostile: str, page: Page) -> None:
    assert "ran on stand-in data" in Page(hostile).text
    assert "stand-in" not in page.text


def test_tables_hold_raw_values_for_sorting_and_csv(page: Page, three_runs: list[Any]) -> None:
    raws = [attrs["data-raw"] for tag, attrs in page.elements if tag == "td" and attrs.get("data-raw")]
    best = next(s for s in three_runs[1].scores() if s.headline and not s.by)
    assert str(best.value) in raws
    assert f"{best.low} {best.high}" in raws


def test_images_of_trials_are_embedded(page: Page) -> None:
    sources = [attrs["src"] or "" for tag, attrs in page.elements if tag == "img"]
    assert sources
    assert all(source.startswith("data:image/png;base64,") for source in sources)


def test_figures_are_embedded_once_and_each_has_a_place(page: Page) -> None:
    data = json.loads(page.scripts[0])
    places = [attrs["data-figure"] for tag, attrs in page.elements if tag == "figure"]
    assert sorted(places) == sorted(data["figures"])
    assert len(places) >= 3 + 1 + 2 * 3 + 1 + 1 + 1


def test_controls_have_names_and_tables_captions(page: Page) -> None:
    for tag, attrs in page.elements:
        if tag == "input" and attrs.get("type") == "search":
            assert attrs.get("aria-label")
        if tag == "img":
            assert attrs.get("alt") is not None
    tags = [tag for tag, _ in page.elements]
    assert tags.count("caption") == tags.count("table")
    assert dict(page.elements)["html"]["lang"] == "en"


def test_one_run_without_scores_or_errors_makes_a_page(new_run: Callable[..., Any], tmp_path: Path) -> None:
    run = new_run(tmp_path, "a", 0.5, n=20, error_share=0.0)
    run.records = run.records.clear()
    assert "Provenance" in Page(render_report([run])).text


def test_several_benchmarks_get_a_part_each(new_run: Callable[..., Any], tmp_path: Path) -> None:
    runs = [new_run(tmp_path, "a", 0.5, n=20, benchmark=name) for name in ("one", "two")]
    ids = {attrs.get("id") for _, attrs in Page(render_report(runs)).elements}
    assert {"b1-ranking", "b2-ranking"} <= ids


def test_writing_returns_the_file_and_refuses_missing_folders(three_runs: list[Any], tmp_path: Path) -> None:
    path = write_report(three_runs, tmp_path)
    assert path == tmp_path / "report.html"
    assert path.stat().st_size < 2_000_000
    with pytest.raises(UsageError, match="does not exist"):
        write_report(three_runs, tmp_path / "no" / "report.html")
    with pytest.raises(UsageError, match="at least one run"):
        write_report([], tmp_path / "r.html")


def large_run(run: Any, n: int) -> Any:
    """The records of a small run, repeated under new ids, as a run of ``n`` trials."""
    times = -(-n // run.records.height)
    store = Store(run.path)
    for name, frame in (("records", run.records), ("samples", run.samples)):
        tiled = pl.concat([frame] * times).head(n)
        ids = pl.format("s{}", pl.int_range(n)).alias("sample")
        tiled = tiled.with_columns(ids, ids.alias("cluster"), pl.int_range(n).alias("index"))
        tiled.write_parquet(run.path / f"{name}.parquet")
    store.write_info(run.info | {"trials": n})
    return type(run)(run.path)


def test_a_report_of_two_hundred_thousand_records_is_bounded(new_run: Callable[..., Any], tmp_path: Path) -> None:
    runs = [large_run(new_run(tmp_path, name, skill, n=600), 100_000) for name, skill in (("a", 0.4), ("b", 0.6))]
    begun = time.process_time()
    path = write_report(runs, tmp_path)
    spent = time.process_time() - begun
    text = Page(path.read_text(encoding="utf-8")).text
    assert "200,000" in text
    assert re.search(r"24 of [\d,]+ errors, 12 of [\d,]+ unread answers, 24 of [\d,]+ low scores", text)
    assert path.stat().st_size < 2_000_000
    assert spent < 45, f"{spent:.0f} s of processor time"


def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no Chromium is installed")
    return found


def opened(path: Path, folder: Path, *extra: str) -> str:
    """The page's document after its scripts ran, network off."""
    flags = [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
        "--disable-sync", "--no-first-run", "--host-resolver-rules=MAP * ~NOTFOUND",
        f"--user-data-dir={folder / 'profile'}",
        "--virtual-time-budget=20000", "--dump-dom", *extra, path.as_uri(),
    ]  # fmt: skip
    done = subprocess.run([chromium(), *flags], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


@pytest.mark.browser
@pytest.mark.parametrize("colours", [0, 1])
def test_scripts_run_without_errors_and_draw_every_visible_figure(
    hostile_runs: list[Any], tmp_path: Path, colours: int
) -> None:
    path = write_report(hostile_runs, tmp_path, tables=[ANALYSIS])
    page = Page(opened(path, tmp_path, f"--blink-settings=preferredColorScheme={colours}"))
    root = dict(page.elements)["html"]
    assert root["data-errors"] == ""
    assert root["data-ready"] == "true"
    figures = [attrs for tag, attrs in page.elements if tag == "figure"]
    drawn = [attrs for attrs in figures if attrs.get("data-drawn") == "true"]
    assert len(drawn) == 6
    assert sum(tag == "svg" for tag, _ in page.elements) == len(drawn)
    title = re.search(r"<title>(.*?)</title>", path.read_text(encoding="utf-8"))
    assert title is not None
    assert title[1] == "Letters drawn"


_DRIVER = """
<!doctype html><iframe id="f" src="report.html" width="1000" height="3000"></iframe><pre id="log"></pre><script>
const log = (x) => { document.getElementById("log").textContent += JSON.stringify(x) + "\\n"; };
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
document.getElementById("f").onload = async () => {
  const d = document.getElementById("f").contentDocument, all = (s) => [...d.querySelectorAll(s)];
  const fire = (node, type) => node.dispatchEvent(new d.defaultView.Event(type, { bubbles: true }));
  await wait(3000);
  const ranking = all("#b1-ranking .table")[0];
  const first = () => ranking.querySelector("tbody tr td:nth-child(2)").textContent;
  log(["first", first()]);
  ranking.querySelectorAll("th button")[2].click();
  ranking.querySelectorAll("th button")[2].click();
  log(["sorted", first(), ranking.querySelectorAll("th")[2].getAttribute("aria-sort")]);
  const group = d.querySelector("#b1-groups select[data-key=group]");
  group.value = "lines"; fire(group, "change"); await wait(2000);
  const shown = all("#b1-groups .panel").filter((p) => !p.hidden);
  log(["panel", shown.map((p) => p.dataset.group + "/" + p.dataset.metric)]);
  log(["redrawn", all("#b1-groups .panel:not([hidden]) svg").length]);
  const box = all(".toggles input")[0]; box.checked = false; fire(box, "change"); await wait(2000);
  log(["rows", [...ranking.querySelectorAll("tbody tr")].filter((r) => !r.hidden).length]);
  log(["columns", all("#b1-groups .panel:not([hidden]) th").filter((h) => !h.hidden).length]);
  log(["names", [...d.querySelectorAll("#b1-ranking .panel:not([hidden]) svg text")].map((t) => t.textContent)]);
  log(["trials", all(".trial").filter((t) => !t.hidden && t.textContent.includes("local:smollm2")).length]);
  const find = d.querySelector(".find"); find.value = "s00"; fire(find, "input");
  log(["found", all(".trial").filter((t) => !t.hidden).length > 0]);
  find.value = "no such words"; fire(find, "input");
  log(["none", all(".trial").filter((t) => !t.hidden).length]);
  d.getElementById("theme").click(); d.getElementById("theme").click(); await wait(2000);
  log(["theme", d.documentElement.dataset.theme, d.defaultView.getComputedStyle(d.body).backgroundColor]);
  const saved = [], click = d.defaultView.HTMLAnchorElement.prototype.click;
  d.defaultView.HTMLAnchorElement.prototype.click = function () { saved.push([this.download, this.href]); };
  ranking.querySelector(".csv").click();
  d.querySelector("#b1-ranking figure .svg").click(); d.querySelector("#b1-ranking figure .png").click();
  await wait(2000);
  log(["saved", saved.map((s) => s[0])]);
  log(["csv", await (await d.defaultView.Blob.prototype.text.call(await new Promise((done) => {
    const old = d.defaultView.URL.createObjectURL;
    d.defaultView.URL.createObjectURL = (blob) => { done(blob); return old.call(d.defaultView.URL, blob); };
    ranking.querySelector(".csv").click();
  })))]);
  log(["errors", d.documentElement.dataset.errors]);
};
</script>
"""


@pytest.mark.browser
def test_a_reader_can_sort_choose_hide_find_and_save(three_runs: list[Any], tmp_path: Path) -> None:
    write_report(three_runs, tmp_path)
    driver = tmp_path / "driver.html"
    driver.write_text(_DRIVER, encoding="utf-8")
    page = opened(driver, tmp_path, "--allow-file-access-from-files", "--virtual-time-budget=40000")
    shown = re.search(r'<pre id="log">(.*?)</pre>', page, re.DOTALL)
    assert shown is not None
    log = {line[0]: line[1:] for line in map(json.loads, html.unescape(shown[1]).splitlines())}
    assert log["errors"] == [""]
    assert log["first"] == ["openai:big"]
    assert log["sorted"] == ["method:constant", "ascending"] or log["sorted"] == ["local:smollm2", "ascending"]
    assert log["panel"] == [["lines/macro_accuracy"]]
    assert log["redrawn"] == [1]
    assert log["rows"] == [2]
    assert log["columns"] == [4]
    assert "local:smollm2" not in log["names"][0]
    assert "openai:big" in log["names"][0]
    assert log["trials"] == [0]
    assert log["found"] == [True]
    assert log["none"] == [0]
    assert log["theme"] == ["dark", "rgb(22, 24, 28)"]
    assert sorted(log["saved"][0]) == [f"ranking.macro_accuracy.{e}" for e in ("csv", "png", "svg")]
    lines = log["csv"][0].splitlines()
    assert lines[0].startswith("rank,system,score,low,high,n")
    assert len(lines) == 3
    assert float(lines[1].split(",")[3]) < float(lines[1].split(",")[2])
