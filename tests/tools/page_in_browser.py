"""Draws pages of `trireme report` in Chromium, and checks what their script makes of them. By hand, since it needs a browser.
  page_in_browser.py PAGE.html ...
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

probe = """<script>
const out = [], jobs = [];
window.save = (name, blob) => jobs.push(blob.type === 'image/png' ? out.push([name, 'png', blob.size]) : blob.text().then(t => out.push([name, blob.type, t])));
document.querySelectorAll('.tools a').forEach(a => a.click());
setTimeout(async () => {
  await Promise.all(jobs);
  const e = document.createElement('pre');
  e.id = 'out';
  e.textContent = JSON.stringify({out, text: document.getElementById('page').innerText, tables: document.querySelectorAll('table').length,
    figures: document.querySelectorAll('figure').length, wide: document.documentElement.scrollWidth > innerWidth});
  document.body.append(e);
}, 3000);
</script>"""

for name in sys.argv[1:]:
    text = pathlib.Path(name).read_text()
    data = json.loads(xml.etree.ElementTree.fromstring(text).find(".//script[@id='data']").text)
    for width in 500, 1400:   # Chromium has no narrower window
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.html"
            page.write_text(text.replace("</body></html>", probe + "</body></html>"))
            dom = subprocess.run(["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", f"--window-size={width},900", "--virtual-time-budget=20000", "--dump-dom", page.as_uri()],
                                 capture_output=True, text=True, timeout=300).stdout
        found = json.loads(xml.etree.ElementTree.fromstring(re.search(r'<pre id="out">.*?</pre>', dom, re.S)[0]).text)
        assert "script failed" not in found["text"] and not re.search(r"\b(NaN|undefined)\b", found["text"]), name
        assert not found["wide"], f"{name} is wider than its window of {width}"
        kinds = {kind: [(title, got) for title, of, got in found["out"] if of == kind] for kind in ("text/csv", "image/svg+xml", "png")}
        assert len(kinds["text/csv"]) == found["tables"] > 0
        assert len(kinds["image/svg+xml"]) == len(kinds["png"]) == found["figures"], (name, found["figures"], len(kinds["png"]))
        for title, svg in kinds["image/svg+xml"]:
            xml.etree.ElementTree.fromstring(svg)
            assert "var(" not in svg and "NaN" not in svg and "Infinity" not in svg, (name, title)
            if data["synthetic"] and data["kind"] != "runs":
                assert "SYNTHETIC DATA" in svg, (name, title)
        assert all(size > 1000 for title, size in kinds["png"])
        print(f"{name}, {width} wide: {found['figures']} figures, {found['tables']} tables, stamps {sum('SYNTHETIC' in svg for _, svg in kinds['image/svg+xml'])}")
