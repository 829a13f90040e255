"""The site loads nothing from elsewhere."""

from docs.site import load_extension

offline = load_extension("offline")


def test_what_a_browser_would_fetch_from_elsewhere_is_found(tmp_path):
    remote = [
        '<script src="https://cdn.example/a.js',
        '<img alt="" src="//example.org/a.png',
        '<link rel="stylesheet" href="http://example.org/a.css',
    ]
    local = '<a href="https://example.org">a link</a><script src="_static/a.js"></script><link rel="canonical" href="https://a.b">'
    (tmp_path / "page.html").write_text(local + "".join(f'{text}">' for text in remote))
    (tmp_path / "style.css").write_text("a { background: url(https://example.org/b.png) } b { background: url(c.png) }")
    assert [found for _, found in offline.remote_loads(tmp_path)] == [*remote, "url(https://example.org/b.png"]
