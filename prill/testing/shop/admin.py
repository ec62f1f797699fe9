"""The side of the shop for those who run it: orders, customers, products, reports."""

from __future__ import annotations

from collections import Counter
from html import escape

from prill.testing.shop.account import order_lines
from prill.testing.shop.pages import Answer, Ask, Refused, Route, button_form, field, redirect, site_page, table, whole
from prill.testing.shop.store import Order, Product, money

_MENU = (
    ("Dashboard", "/admin/dashboard"),
    ("Orders", "/admin/sales/order/"),
    ("Customers", "/admin/customer/index/"),
    ("Products", "/admin/catalog/product/"),
    ("Bestsellers", "/admin/reports/report_sales/bestsellers/"),
    ("Order Report", "/admin/reports/report_sales/sales/"),
    ("Sign Out", "/admin/auth/logout/"),
)
_STATUSES = ("Pending", "Processing", "Complete", "Canceled")
_FOLD = "const s = this.nextElementSibling; s.hidden = !s.hidden; this.setAttribute('aria-expanded', !s.hidden)"


def login_page(ask: Ask, said: str = "") -> Answer:
    """The form, or the dashboard of who is signed in already."""
    if ask.user is not None:
        return redirect("/admin/dashboard")
    wrong = f'<p class="wrong" role="alert">{escape(said)}</p>' if said else ""
    fields = field("Username", "login[username]", hint="user name")
    fields += field("Password", "login[password]", kind="password", hint="password")
    return site_page("shopping_admin", "Welcome, please sign in", (), wrong + button_form("/admin", "Sign in", fields))


def login(ask: Ask) -> Answer:
    """Signs in, or says that it cannot."""
    token = ask.store.sign_in("shopping_admin", ask.form.get("login[username]", ""), ask.form.get("login[password]", ""))
    if token is None:
        return login_page(ask, "The account sign-in was incorrect or your account is disabled temporarily.")
    return redirect("/admin/dashboard", token)


def logout(ask: Ask) -> Answer:
    """Signs out."""
    ask.store.sign_out(ask.session)
    return redirect("/admin", "")


def dashboard(ask: Ask) -> Answer:
    """What was earned, and the last orders."""
    sold = [o for o in ask.store.orders if o.status != "Canceled"]
    last = sorted(ask.store.orders, key=lambda o: o.date, reverse=True)[:5]
    body = f'<p class="price">Lifetime Sales {money(sum(o.total for o in sold))}</p><h2>Last Orders</h2>{_orders(ask, last)}'
    return _page("Dashboard", body)


def orders(ask: Ask) -> Answer:
    """All orders, or those with a status or of a customer."""
    status, words = ask.query.get("status", ""), ask.query.get("q", "").strip().lower()
    shown = [
        o
        for o in ask.store.orders
        if (not status or o.status == status) and (not words or words in f"{o.label} {o.email} {_name(ask, o)}".lower())
    ]
    options = "".join(f"<option{' selected' if each == status else ''}>{each}</option>" for each in _STATUSES)
    form = (
        '<form class="inline" action="/admin/sales/order/"><label>Status <select name="status"><option value="">Any</option>'
        f'{options}</select></label><label>Search <input name="q" value="{escape(ask.query.get("q", ""))}"></label>'
        "<button>Apply Filters</button></form>"
    )
    return _page("Orders", f"{form}<p>{len(shown)} records found</p>{_orders(ask, shown)}")


def order(ask: Ask) -> Answer:
    """One order, to ship or to cancel."""
    it = _order(ask)
    buttons = ""
    if it.status in ("Pending", "Processing"):
        where = f"/admin/sales/order/view/order_id/{it.number}"
        buttons = f'<div class="inline">{button_form(where + "/ship", "Ship")}{button_form(where + "/cancel", "Cancel")}</div>'
    status = f'<p>Order Status: <b id="order_status">{escape(it.status)}</b></p>'
    facts = f"<p>{escape(_name(ask, it))}, {escape(it.email)}</p>{status}"
    return _page(f"Order # {it.label}", facts + buttons + order_lines(ask.store, it))


def change_order(ask: Ask) -> Answer:
    """Ships or cancels; what is canceled goes back to the stock."""
    it, wanted = _order(ask), ask.parts["change"]
    if it.status not in ("Pending", "Processing") or wanted not in ("ship", "cancel"):
        raise Refused(400, "This order cannot be changed any more.")
    it.status = "Complete" if wanted == "ship" else "Canceled"
    if wanted == "cancel":
        for sku, quantity, _ in it.lines:
            ask.store.products[sku].stock += quantity
    return redirect(f"/admin/sales/order/view/order_id/{it.number}/")


def customers(ask: Ask) -> Answer:
    """Everybody with an account."""
    bought = Counter(o.email for o in ask.store.orders)
    rows = (
        (escape(c.name), escape(c.email), escape(f"{c.address.city}, {c.address.state}"), str(bought[c.email]))
        for c in ask.store.customers.values()
    )
    return _page("Customers", table(("Name", "Email", "City", "Orders"), rows, "Customers"))


def products(ask: Ask) -> Answer:
    """Everything for sale."""
    rows = (
        (
            str(it.id),
            escape(it.name),
            escape(it.sku),
            money(it.price),
            str(it.stock),
            f'<a href="/admin/catalog/product/edit/id/{it.id}/" aria-label="Edit {escape(it.name)}">Edit</a>',
        )
        for it in ask.store.products.values()
    )
    return _page("Products", table(("ID", "Name", "SKU", "Price", "Quantity", "Action"), rows, "Products"))


def product(ask: Ask) -> Answer:
    """The form for one product; the stock is behind a button, as in the real thing."""
    it = _product(ask)
    inventory = (
        '<div data-index="inventory"><button type="button" class="admin__collapsible-title" aria-expanded="false" '
        f'onclick="{_FOLD}">Inventory</button><div hidden><p>In stock: {it.stock}</p>'
        f"{field('Quantity', 'product[quantity]', str(it.stock))}</div></div>"
    )
    fields = field("Product Name", "product[name]", it.name) + field("Price", "product[price]", f"{it.price / 100:.2f}")
    form = button_form(f"/admin/catalog/product/edit/id/{it.id}/", "Save", fields + inventory)
    return _page(it.name, form, "You saved the product." if "said" in ask.query else "")


def save_product(ask: Ask) -> Answer:
    """Takes name, price and stock."""
    it = _product(ask)
    name = ask.form.get("product[name]", "").strip()
    try:
        price = round(float(ask.form.get("product[price]", "").strip().removeprefix("$")) * 100)
    except (ValueError, OverflowError):
        price = -1
    if not name or not 0 <= price <= 10_000_000:
        raise Refused(400, "A product needs a name, and a price such as 12.50.")
    stock = whole(ask.form.get("product[quantity]", ""), "The quantity", 0, 1_000_000)
    it.name, it.price, it.stock = name, price, stock
    return redirect(f"/admin/catalog/product/edit/id/{it.id}/?said=1")


def bestsellers(ask: Ask) -> Answer:
    """How many of each product were sold in a time."""
    counts: Counter[str] = Counter()
    for it in _between(ask):
        for sku, quantity, _ in it.lines:
            counts[sku] += quantity
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    rows = ((escape(ask.store.products[sku].name), money(ask.store.products[sku].price), str(n)) for sku, n in ranked)
    return _page("Bestsellers Report", _dates(ask) + table(("Product", "Price", "Order Quantity"), rows, "Bestsellers"))


def sales(ask: Ask) -> Answer:
    """What each month brought."""
    months: dict[str, list[Order]] = {}
    for it in _between(ask):
        months.setdefault(it.date[:7], []).append(it)
    rows = ((month, str(len(own)), money(sum(o.total for o in own))) for month, own in sorted(months.items()))
    return _page("Order Report", _dates(ask) + table(("Month", "Orders", "Sales Total"), rows, "Orders by month"))


def _page(title: str, body: str, said: str = "") -> Answer:
    return site_page("shopping_admin", title, _MENU, body, said=said)


def _dates(ask: Ask) -> str:
    names = (("From", "from"), ("To", "to"))
    fields = "".join(field(label, name, ask.query.get(name, ""), hint="YYYY-MM-DD") for label, name in names)
    return f'<form action="{escape(ask.path)}">{fields}<button>Show Report</button></form>'


def _between(ask: Ask) -> list[Order]:
    first, last = ask.query.get("from") or "0000", ask.query.get("to") or "9999"
    return [o for o in ask.store.orders if o.status != "Canceled" and first <= o.date[:10] <= last]


def _orders(ask: Ask, shown: list[Order]) -> str:
    rows = (
        (
            o.label,
            o.date[:10],
            escape(_name(ask, o)),
            money(o.total),
            escape(o.status),
            f'<a href="/admin/sales/order/view/order_id/{o.number}/">View {o.label}</a>',
        )
        for o in shown
    )
    return table(("ID", "Purchase Date", "Customer", "Grand Total", "Status", "Action"), rows, "Orders")


def _name(ask: Ask, it: Order) -> str:
    return ask.store.customers[it.email].name


def _order(ask: Ask) -> Order:
    for it in ask.store.orders:
        if str(it.number) == ask.parts["number"]:
            return it
    raise Refused(404, "There is no such order.")


def _product(ask: Ask) -> Product:
    for it in ask.store.products.values():
        if str(it.id) == ask.parts["id"]:
            return it
    raise Refused(404, "There is no such product.")


ROUTES = (
    Route("GET", "/admin", login_page),
    Route("POST", "/admin", login),
    Route("GET", "/admin/auth/logout", logout),
    Route("GET", "/admin/dashboard", dashboard, private=True),
    Route("GET", "/admin/sales/order", orders, private=True),
    Route("GET", "/admin/sales/order/view/order_id/{number}", order, private=True),
    Route("POST", "/admin/sales/order/view/order_id/{number}/{change}", change_order, private=True),
    Route("GET", "/admin/customer/index", customers, private=True),
    Route("GET", "/admin/catalog/product", products, private=True),
    Route("GET", "/admin/catalog/product/edit/id/{id}", product, private=True),
    Route("POST", "/admin/catalog/product/edit/id/{id}", save_product, private=True),
    Route("GET", "/admin/reports/report_sales/bestsellers", bestsellers, private=True),
    Route("GET", "/admin/reports/report_sales/sales", sales, private=True),
)
