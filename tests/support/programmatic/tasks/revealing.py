"""Programs for hidden elements: sections, tabs, menus, folders, lists that appear while typing."""

from __future__ import annotations

import re

from tests.support.programmatic.screen import Move, Node, Page, click, detect_kind, enter


def _section(match: re.Match[str], page: Page) -> list[Move]:
    return page.left(
        [*(click(header) for header, _ in page.matching(r"Section #\d+")), click(page.end())]
    )


def _link_in(page: Page, name: str, closed: list[Node]) -> list[Move]:
    """Clicks the link if it is visible, otherwise opens the next section that was not opened
    before.
    """
    if found := [node for node in page.saying(name) if node not in closed]:
        return page.left([click(found[0])])
    unopened = [node for node in closed if not page.clicked(node)]
    if not unopened:
        raise LookupError(f"{name!r} is nowhere here")
    return [click(unopened[0])]


def _link_in_section(match: re.Match[str], page: Page) -> list[Move]:
    return _link_in(page, match["name"], [header for header, _ in page.matching(r"Section #\d+")])


def _link_in_tab(match: re.Match[str], page: Page) -> list[Move]:
    """Opens tabs to find a link. The first tab is open from the start, so it comes last."""
    tabs = [tab for tab, _ in page.matching(r"(?:Tab #)?\d+")]
    return _link_in(page, match["name"], tabs[1:] + tabs[:1])


def _in_tree(match: re.Match[str], page: Page) -> list[Move]:
    folders = page.named("folder") or [
        node for node in page.nodes if node.tag.lower() == "span" and node.text
    ]
    if found := page.saying(match["name"]):
        return page.left([click(found[0])])
    return _link_in(page, match["name"], folders)


def _menu_path(match: re.Match[str], page: Page) -> list[Move]:
    """Follows a menu path. Hovering opens a branch; a click would select it. A name is looked up
    below its branch.
    """
    rest, names = list(page.nodes), match["path"].split(">")
    for name in names:
        found = next((node for node in rest if node.text.strip() == name), None)
        if found is None:
            raise LookupError(f"the menu shows no {name!r}")
        move = click(found) if name is names[-1] else Move("hover", found.ref)
        if move not in page.done:
            return [move]
        rest = rest[rest.index(found) + 1 :]
    return []


def _menu_item(match: re.Match[str], page: Page) -> list[Move]:
    wanted = page.saying(match["name"]) if match["name"] else _with_icon(page)
    if wanted:
        return page.left([click(wanted[0])])
    for name in ("Playback", "Menu"):
        if (found := page.saying(name)) and not page.clicked(found[0]):
            return [click(found[0])]
    raise LookupError("the menu does not show what is wanted")


def _with_icon(page: Page) -> list[Node]:
    """Returns the elements with the goal's icon. The goal shows it as an image, and the page names
    it by a class.
    """
    for node in page.instruction:
        for name in node.attributes.get("class", "").split():
            if name.startswith("ui-icon-"):
                return page.named(name)
    raise LookupError("the icon in the goal is not told")


def _completed(match: re.Match[str], page: Page) -> list[Move]:
    """Types the beginning, then selects the list entry with the required ending."""
    field = page.field()
    start, last = enter(field, match["start"]), match["last"] or ""
    if start not in page.done:
        return [start]
    for node in page.nodes:
        text = node.text.strip()
        if (
            text.startswith(match["start"])
            and text.endswith(last)
            and detect_kind(node) in ("div", "li", "a", "t")
        ):
            return page.left([click(node), click(page.end())])
    if page.done[-1] == start:
        raise LookupError(f"nothing that ends with {last!r} is offered")
    return page.left([click(page.end())])


def _search_result(match: re.Match[str], page: Page) -> list[Move]:
    """Finds a search result. A page shows three results, and has page links below."""
    results = page.named("search-title")
    search = [enter(page.field(), match["text"]), click(page.one("Search"))]
    left = page.left(search)
    if left:
        return left
    place = int(match["place"]) - 1
    links = [node for node in page.of_kind("a") if re.search(r"[A-Za-z]", node.text)]
    results = results or [
        node for node in links if node.text not in ("First", "Last", "Previous", "Next")
    ]
    # Every page has new links with other numbers, so the clicks since the search show how often the
    # page was turned.
    since = page.done[list(page.done).index(search[1]) + 1 :]
    if place >= 3 and not since:
        return [click(page.one(str(place // 3 + 1)))]
    if len(results) <= place % 3:
        raise LookupError(f"there is no search result number {place + 1}")
    return page.left([click(results[place % 3])])


def _post_action(match: re.Match[str], page: Page) -> list[Move]:
    """Performs an action on a post. Three actions are icons; the others are in a menu, named by the
    action and sometimes by the user.
    """
    posts = page.saying(match["user"])
    if not posts:
        raise LookupError(f"there is no post by {match['user']!r}")
    below, action = page.after(posts[0]), match["action"]
    for node in below:
        if node.text.strip() in (action, f"{action} {match['user']}"):
            return page.left([click(node)])
    name = action.lower() if action in ("Reply", "Retweet", "Like") else "more"
    for node in below:
        if name in (node.text, *node.attributes.get("class", "").split()):
            return page.left([click(node)])
    raise LookupError(f"the post has no {action!r}")


def _posts_action(match: re.Match[str], page: Page) -> list[Move]:
    """Clicks the icon of the action below each post of the user."""
    posts = page.saying(match["user"])
    wanted = posts[: int(match["count"])] if match["count"] else posts
    return page.left(
        [*(click(_icon(page, post, match["action"].lower())) for post in wanted), click(page.end())]
    )


def _icon(page: Page, post: Node, name: str) -> Node:
    for node in page.after(post):
        if name in (node.text, *node.attributes.get("class", "").split()):
            return node
    raise LookupError(f"the post has no {name!r}")


PROGRAMS = {
    r"^Expand the section below and click submit": _section,
    r'^Expand the sections below, to find and click on the link "(?P<name>.+?)"\.$': _link_in_section,  # noqa: E501
    r'^Switch between the tabs to find and click on the link "(?P<name>.+?)"\.$': _link_in_tab,
    r'^Navigate through the file tree\..* named "(?P<name>.+?)"': _in_tree,
    r'^Click the "Menu" button, and then find and click on the item (?:labeled "(?P<name>.+?)"|with the)': _menu_item,  # noqa: E501
    r"^Select (?P<path>[^ >]+(?:>[^ >]+)*)$": _menu_path,
    r'^Enter an item that starts with "(?P<start>.+?)"(?: and ends with "(?P<last>.+?)")?\.$': _completed,  # noqa: E501
    r'^Use the textbox to enter "(?P<text>.+?)" and press "Search", then find and click the (?P<place>\d+)': _search_result,  # noqa: E501
    r'^For the user (?P<user>@\w+), click on the "(?P<action>.+?)" button': _post_action,
    r'^Click the "(?P<action>\w+)" button on (?:all|(?P<count>\d+)) posts? by (?P<user>@\w+)': _posts_action,  # noqa: E501
}
