"""The shop's administration pages: orders, customers, products, reports."""

from __future__ import annotations

from collections import Counter
from html import escape

from prill.emulators.shop.account import order_lines
from prill.emulators.shop.pages import (
    PageError,
    Response,
    Route,
    ShopRequest,
    button_form,
    field,
    redirect,
    site_page,
    table,
    whole_number,
)
from prill.emulators.shop.store import Product, ShopOrder, money

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
_FOLD = (
    "const s = this.nextElementSibling; s.hidden = !s.hidden; "
    "this.setAttribute('aria-expanded', !s.hidden)"
)


def login_page(request: ShopRequest, message: str = "") -> Response:
    """The form, or the dashboard of who is signed in already."""
    if request.user is not None:
        return redirect("/admin/dashboard")
    wrong = f'<p class="wrong" role="alert">{escape(message)}</p>' if message else ""
    fields = field("Username", "login[username]", hint="user name")
    fields += field("Password", "login[password]", kind="password", hint="password")
    return site_page(
        "shopping_admin",
        "Welcome, please sign in",
        (),
        wrong + button_form("/admin", "Sign in", fields),
    )


def login(request: ShopRequest) -> Response:
    """Signs in, or says that it cannot."""
    token = request.store.sign_in(
        "shopping_admin",
        request.form.get("login[username]", ""),
        request.form.get("login[password]", ""),
    )
    if token is None:
        return login_page(
            request, "The account sign-in was incorrect or your account is disabled temporarily."
        )
    return redirect("/admin/dashboard", token)


def logout(request: ShopRequest) -> Response:
    """Signs out."""
    request.store.sign_out(request.session)
    return redirect("/admin", "")


def dashboard(request: ShopRequest) -> Response:
    """Total sales and the latest orders."""
    sold = [o for o in request.store.orders if o.status != "Canceled"]
    last = sorted(request.store.orders, key=lambda o: o.date, reverse=True)[:5]
    body = (
        f'<p class="price">Lifetime Sales {money(sum(o.total for o in sold))}</p><h2>Last '
        f"Orders</h2>{_orders(request, last)}"
    )
    return _page("Dashboard", body)


def orders(request: ShopRequest) -> Response:
    """All orders, or those with a status or of a customer."""
    status, words = request.query.get("status", ""), request.query.get("q", "").strip().lower()
    matches = [
        o
        for o in request.store.orders
        if (not status or o.status == status)
        and (not words or words in f"{o.label} {o.email} {_name(request, o)}".lower())
    ]
    options = "".join(
        f"<option{' selected' if each == status else ''}>{each}</option>" for each in _STATUSES
    )
    form = (
        '<form class="inline" action="/admin/sales/order/"><label>Status <select '
        'name="status"><option value="">Any</option>'
        f'{options}</select></label><label>Search <input name="q" '
        f'value="{escape(request.query.get("q", ""))}"></label>'
        "<button>Apply Filters</button></form>"
    )
    return _page("Orders", f"{form}<p>{len(matches)} records found</p>{_orders(request, matches)}")


def order(request: ShopRequest) -> Response:
    """One order, to ship or to cancel."""
    order = _order(request)
    buttons = ""
    if order.status in ("Pending", "Processing"):
        where = f"/admin/sales/order/view/order_id/{order.number}"
        buttons = f'<div class="inline">{button_form(where + "/ship", "Ship")}{button_form(where + "/cancel", "Cancel")}</div>'  # noqa: E501
    status = f'<p>Order Status: <b id="order_status">{escape(order.status)}</b></p>'
    facts = f"<p>{escape(_name(request, order))}, {escape(order.email)}</p>{status}"
    return _page(f"Order # {order.label}", facts + buttons + order_lines(request.store, order))


def change_order(request: ShopRequest) -> Response:
    """Ships or cancels; what is canceled goes back to the stock."""
    order, change = _order(request), request.parts["change"]
    if order.status not in ("Pending", "Processing") or change not in ("ship", "cancel"):
        raise PageError(400, "This order cannot be changed any more.")
    order.status = "Complete" if change == "ship" else "Canceled"
    if change == "cancel":
        for sku, quantity, _ in order.lines:
            request.store.products[sku].stock += quantity
    return redirect(f"/admin/sales/order/view/order_id/{order.number}/")


def customers(request: ShopRequest) -> Response:
    """Everybody with an account."""
    bought = Counter(o.email for o in request.store.orders)
    rows = (
        (
            escape(c.name),
            escape(c.email),
            escape(f"{c.address.city}, {c.address.state}"),
            str(bought[c.email]),
        )
        for c in request.store.customers.values()
    )
    return _page("Customers", table(("Name", "Email", "City", "Orders"), rows, "Customers"))


def products(request: ShopRequest) -> Response:
    """The product list."""
    rows = (
        (
            str(product.id),
            escape(product.name),
            escape(product.sku),
            money(product.price),
            str(product.stock),
            f'<a href="/admin/catalog/product/edit/id/{product.id}/" aria-label="Edit '
            f'{escape(product.name)}">Edit</a>',
        )
        for product in request.store.products.values()
    )
    return _page(
        "Products", table(("ID", "Name", "SKU", "Price", "Quantity", "Action"), rows, "Products")
    )


def product(request: ShopRequest) -> Response:
    """The form for one product; the stock is behind a button, as in the real thing."""
    product = _product(request)
    inventory = (
        '<div data-index="inventory"><button type="button" class="admin__collapsible-title" '
        'aria-expanded="false" '
        f'onclick="{_FOLD}">Inventory</button><div hidden><p>In stock: {product.stock}</p>'
        f"{field('Quantity', 'product[quantity]', str(product.stock))}</div></div>"
    )
    fields = field("Product Name", "product[name]", product.name) + field(
        "Price", "product[price]", f"{product.price / 100:.2f}"
    )
    form = button_form(f"/admin/catalog/product/edit/id/{product.id}/", "Save", fields + inventory)
    return _page(product.name, form, "You saved the product." if "said" in request.query else "")


def save_product(request: ShopRequest) -> Response:
    """Takes name, price and stock."""
    product = _product(request)
    name = request.form.get("product[name]", "").strip()
    try:
        price = round(float(request.form.get("product[price]", "").strip().removeprefix("$")) * 100)
    except (ValueError, OverflowError):
        price = -1
    if not name or not 0 <= price <= 10_000_000:
        raise PageError(400, "A product needs a name, and a price such as 12.50.")
    stock = whole_number(request.form.get("product[quantity]", ""), "The quantity", 0, 1_000_000)
    product.name, product.price, product.stock = name, price, stock
    return redirect(f"/admin/catalog/product/edit/id/{product.id}/?said=1")


def bestsellers(request: ShopRequest) -> Response:
    """Units sold by product within a period."""
    counts: Counter[str] = Counter()
    for order in _between(request):
        for sku, quantity, _ in order.lines:
            counts[sku] += quantity
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    rows = (
        (escape(request.store.products[sku].name), money(request.store.products[sku].price), str(n))
        for sku, n in ranked
    )
    return _page(
        "Bestsellers Report",
        _dates(request) + table(("Product", "Price", "Order Quantity"), rows, "Bestsellers"),
    )


def sales(request: ShopRequest) -> Response:
    """Sales by month."""
    months: dict[str, list[ShopOrder]] = {}
    for order in _between(request):
        months.setdefault(order.date[:7], []).append(order)
    rows = (
        (month, str(len(own)), money(sum(o.total for o in own)))
        for month, own in sorted(months.items())
    )
    return _page(
        "Order Report",
        _dates(request) + table(("Month", "Orders", "Sales Total"), rows, "Orders by month"),
    )


def _page(title: str, body: str, message: str = "") -> Response:
    return site_page("shopping_admin", title, _MENU, body, message=message)


def _dates(request: ShopRequest) -> str:
    names = (("From", "from"), ("To", "to"))
    fields = "".join(
        field(label, name, request.query.get(name, ""), hint="YYYY-MM-DD") for label, name in names
    )
    return f'<form action="{escape(request.path)}">{fields}<button>Show Report</button></form>'


def _between(request: ShopRequest) -> list[ShopOrder]:
    first, last = request.query.get("from") or "0000", request.query.get("to") or "9999"
    return [
        o for o in request.store.orders if o.status != "Canceled" and first <= o.date[:10] <= last
    ]


def _orders(request: ShopRequest, orders: list[ShopOrder]) -> str:
    rows = (
        (
            o.label,
            o.date[:10],
            escape(_name(request, o)),
            money(o.total),
            escape(o.status),
            f'<a href="/admin/sales/order/view/order_id/{o.number}/">View {o.label}</a>',
        )
        for o in orders
    )
    return table(
        ("ID", "Purchase Date", "Customer", "Grand Total", "Status", "Action"), rows, "Orders"
    )


def _name(request: ShopRequest, order: ShopOrder) -> str:
    return request.store.customers[order.email].name


def _order(request: ShopRequest) -> ShopOrder:
    for order in request.store.orders:
        if str(order.number) == request.parts["number"]:
            return order
    raise PageError(404, "There is no such order.")


def _product(request: ShopRequest) -> Product:
    for product in request.store.products.values():
        if str(product.id) == request.parts["id"]:
            return product
    raise PageError(404, "There is no such product.")


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
